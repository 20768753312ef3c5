"""Search for programs whose conversion changes their meaning: `python utils/fuzz_convert.py --examples 2000`.

Draws random programs (`tests/oracle/programs.py`), executes each with Python's own inheritance and as the generated
file, and compares. Prints what became of them, and each sort of silent difference with its smallest program, which is
saved with `--save`.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402

from tests.oracle.programs import Program, programs  # noqa: E402
from tests.oracle.reduce import reduce_texts  # noqa: E402
from tests.oracle.verdict import Outcome, Verdict, judge  # noqa: E402


def main() -> int:
    """Run the search; the exit code is 1 when a program's meaning changes without a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=500, help="random programs (500)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the random choices")
    parser.add_argument("--each", type=int, default=1, help="programs to reduce for each sort of difference (1)")
    parser.add_argument("--save", metavar="FOLDER", help="where the smallest program of each difference goes")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    failed = search(options.examples, options.seed)
    shown: set[Program] = set()
    for kind, found in sorted(failed.items()):
        for program in sorted(found, key=lambda one: len(one.emu + one.llama))[: options.each]:
            smallest = reduce_program(program)
            if smallest not in shown:
                shown.add(smallest)
                show(len(shown), kind, smallest, options.save)
    return 1 if failed else 0


def show(number: int, kind: str, program: Program, folder: str | None) -> None:
    """Print a program and what is wrong with its conversion; save it too."""
    verdict = judge(program)
    print(f"\n== {number}: {kind}\n{(*verdict.differences, *verdict.findings)[0]}")
    print(f"{program.llama}\n{program.bert}\n# modular_emu.py\n{program.emu}", flush=True)
    if folder:
        slug = re.sub(r"\W+", "_", kind).strip("_")
        save(os.path.join(folder, f"{number:03}_{slug}"), program, verdict)


def search(examples: int, start: int) -> dict[str, list[Program]]:
    """Judge random programs; return the programs of each sort of failure."""
    counts: Counter[str] = Counter()
    failed: defaultdict[str, list[Program]] = defaultdict(list)

    @seed(start)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def each(program: Program) -> None:
        verdict = judge(program)
        counts[verdict.outcome.value] += 1
        counts.update({f"  {rule}" for rule in _rules(verdict)})
        if verdict.outcome in (Outcome.SILENT, Outcome.CRASHED):
            failed[verdict.kind].append(program)

    began = time.monotonic()
    each()
    print(f"{sum(counts[outcome.value] for outcome in Outcome)} programs in {time.monotonic() - began:.0f} s")
    for what, count in sorted(counts.items(), key=lambda item: (item[0].startswith(" "), -item[1])):
        print(f"{count:7} {what}")
    return failed


def _rules(verdict: Verdict) -> list[str]:
    short = {Outcome.REFUSED: "refused", Outcome.WARNED: "named by", Outcome.SAME: "same, but"}.get(verdict.outcome)
    return [f"{short} {finding.rule.name}" for finding in verdict.findings] if short else []


def reduce_program(program: Program) -> Program:
    """The smallest program, by single steps, that fails in the same way."""
    quick = _reduced(program, lints=False)
    return quick if judge(quick).outcome is judge(program).outcome else _reduced(program, lints=True)


def _reduced(program: Program, lints: bool) -> Program:
    first = judge(program, lints)

    def still_fails(texts: Mapping[str, str]) -> bool:
        verdict = judge(Program(**texts), lints)
        return (verdict.outcome, verdict.kind) == (first.outcome, first.kind)

    smallest = reduce_texts({"bert": program.bert, "llama": program.llama, "emu": program.emu}, still_fails)
    tidy = {name: re.sub(r"\n\n\n+", "\n\n", text.strip()) + "\n" for name, text in smallest.items()}
    return Program(**(tidy if still_fails(tidy) else smallest))


def save(folder: str, program: Program, verdict: Verdict) -> None:
    """Write a program, what it was converted to, and what differs."""
    os.makedirs(folder, exist_ok=True)
    told = [*map(str, verdict.differences), *map(str, verdict.findings)]
    texts = {"modeling_llama.py": program.llama, "modeling_bert.py": program.bert, "modular_emu.py": program.emu}
    texts |= {"generated.py": verdict.generated, "README": "\n".join(told) + "\n"}
    for name, text in texts.items():
        if text.strip():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)


if __name__ == "__main__":
    sys.exit(main())
