"""Search for programs whose conversion changes their meaning: `python utils/fuzz_convert.py --examples 2000`.

Draws random programs (`tests/oracle/programs.py`), executes each with Python's own inheritance and as the generated
file, and compares. Prints what became of them, and each sort of silent difference with its smallest program, which is
saved with `--save`. Program 17 of seed 5 is always the same: `--seed 5 --first 17 --examples 1`.

With `--mutants N` it damages modular files of the installed `transformers` instead, and converts them: no internal
error, no generated text that does not compile, no hang, and, for each twentieth, the same result twice. Files are drawn
by the inverse of their size.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, TypeVar


ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, ROOT)

from modular_converter.files.arguments import discover  # noqa: E402
from tests.oracle.mutants import complaint, mutate  # noqa: E402
from tests.oracle.programs import Program, program_of  # noqa: E402
from tests.oracle.reduce import reduce_texts  # noqa: E402
from tests.oracle.verdict import Outcome, Verdict, judge, settings  # noqa: E402


T = TypeVar("T")
TWICE = 20
"""Of so many mutants, one is converted twice."""
FAILED = (Outcome.SILENT, Outcome.CRASHED)


def main() -> int:
    """Run the search; the exit code is 1 when a program's meaning changes without a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=500, help="random programs (500)")
    parser.add_argument("--mutants", type=int, default=0, help="damaged published files, in place of programs")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the random choices")
    parser.add_argument("--first", type=int, default=0, help="the number of the first program or mutant (0)")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    parser.add_argument("--each", type=int, default=1, help="programs to reduce for each sort of difference (1)")
    parser.add_argument("--save", metavar="FOLDER", help="where the smallest program of each difference goes")
    options = parser.parse_args()
    numbers = range(options.first, options.first + (options.mutants or options.examples))
    if options.mutants:
        return 1 if search_mutants(options.seed, numbers, options.workers, options.save) else 0
    campaign = search(options.seed, numbers, options.workers)
    print(campaign.table(), flush=True)
    shown: set[Program] = set()
    for kind, found in sorted(campaign.failed.items()):
        for number in found[: options.each]:
            smallest = reduce_program(program_of(options.seed, number))
            if smallest not in shown:
                shown.add(smallest)
                show(number, kind, smallest, options.save)
    return 1 if campaign.failed else 0


class Result(NamedTuple):
    """The outcome of one program, small enough to be sent between processes."""

    outcome: Outcome
    kind: str
    rules: frozenset[str]


@dataclass
class Campaign:
    """The outcomes of many programs."""

    seed: int
    began: float = field(default_factory=time.monotonic)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    rules: defaultdict[str, Counter[Outcome]] = field(default_factory=lambda: defaultdict(Counter))
    """For each rule, the number of programs of each outcome with a finding of this rule."""
    failed: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Sort of difference -> the numbers of the programs."""

    def add(self, number: int, result: Result) -> None:
        """Count one program."""
        self.outcomes[result.outcome] += 1
        for rule in result.rules:
            self.rules[rule][result.outcome] += 1
        if result.outcome in FAILED:
            self.failed[result.kind].append(number)

    def table(self) -> str:
        """The figures on one screen."""
        total = sum(self.outcomes.values())
        seconds = time.monotonic() - self.began
        lines = [f"seed {self.seed}: {total} programs in {seconds:.0f} s"]
        lines += [f"{self.outcomes[outcome]:7} {outcome.value}" for outcome in Outcome]
        shown = (Outcome.REFUSED, Outcome.WARNED, Outcome.SAME)
        lines.append("\nrefused  warned    same  with a finding of")
        for rule, counts in sorted(self.rules.items(), key=lambda item: (-item[1][Outcome.REFUSED], item[0])):
            lines.append("".join(f"{counts[outcome]:7} " for outcome in shown) + f" {rule}")
        lines += [f"\n{kind}: programs {', '.join(map(str, found))}" for kind, found in sorted(self.failed.items())]
        return "\n".join(lines)


def search(seed: int, numbers: range, workers: int) -> Campaign:
    """Judge random programs."""
    campaign = Campaign(seed)
    for number, result in zip(numbers, _each(_judged, seed, numbers, workers), strict=True):
        campaign.add(number, result)
    return campaign


def _each(task: Callable[[int, int], T], seed: int, numbers: range, workers: int) -> Iterator[T]:
    """The results of a task for each number, in this process or in several."""
    if workers == 1:
        yield from (task(seed, number) for number in numbers)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(task, itertools.repeat(seed, len(numbers)), numbers, chunksize=25)


def search_mutants(seed: int, numbers: range, workers: int, folder: str | None) -> int:
    """Convert mutants of the published corpus; print each complaint and the figures, and return how many there are."""
    began, counts, complaints = time.monotonic(), Counter[str](), 0
    for number, (path, wrong, outcome) in zip(numbers, _each(_complained, seed, numbers, workers), strict=True):
        counts[outcome] += 1
        if not wrong:
            continue
        complaints += 1
        print(f"mutant {number} of {os.path.basename(path)}: {wrong}", flush=True)
        if folder:
            name = os.path.join(folder, f"{number:06}_{os.path.basename(path)}")
            os.makedirs(folder, exist_ok=True)
            with open(name, "w", encoding="utf-8") as file:
                file.write(mutant_of(seed, number)[1])
    twice = sum(number % TWICE == 0 for number in numbers)
    print(f"seed {seed}: {len(numbers)} mutants in {time.monotonic() - began:.0f} s, {twice} of them converted twice")
    print("\n".join(f"{count:7} {what}" for what, count in [*sorted(counts.items()), ("complaints", complaints)]))
    return complaints


def mutant_of(seed: int, number: int) -> tuple[str, str]:
    """A modular file of the installed library, and a damaged text of it."""
    draw = random.Random(f"{seed}/{number}")
    path = draw.choices(*_published())[0]
    with open(path, encoding="utf-8") as file:
        return path, mutate(file.read(), draw)


@cache
def _published() -> tuple[list[str], list[float]]:
    """The modular files, and how often each is drawn: small ones more often, since a campaign then sees more damage."""
    spec = importlib.util.find_spec("transformers")
    assert spec is not None and spec.origin is not None, "transformers is not installed"
    paths = [*discover([os.path.join(os.path.dirname(spec.origin), "models")], None).paths]
    return paths, [1 / os.path.getsize(path) for path in paths]


def _complained(seed: int, number: int) -> tuple[str, str, str]:
    path, text = mutant_of(seed, number)
    return path, *complaint(path, text, settings("none"), twice=number % TWICE == 0)


def _judged(seed: int, number: int) -> Result:
    verdict = judge(program_of(seed, number))
    return Result(verdict.outcome, verdict.kind, frozenset(finding.rule.name for finding in verdict.findings))


def show(number: int, kind: str, program: Program, folder: str | None) -> None:
    """Print a program and what is wrong with its conversion; save it too."""
    verdict = judge(program)
    print(f"\n== program {number}: {kind}\n{(*verdict.differences, *verdict.findings)[0]}")
    print(f"{program.llama}\n{program.bert}\n# modular_emu.py\n{program.emu}", flush=True)
    if folder:
        slug = re.sub(r"\W+", "_", kind).strip("_")
        save(os.path.join(folder, f"{number:05}_{slug}"), program, verdict)


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
    """Write a program, its conversion, and the difference."""
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
