"""Try random uses of models on several devices: `python utils/mutate_uses.py --sequences 2000 --record FILE`.

Each sequence of lines runs on a small model on one device, and on its copy in shares: calls, settings, modes, methods and
saves of a model on CPU ranks (`tests/parallel/random_lines.py`), and training steps in the layouts of process groups
(`tests/parallel/random_steps.py`). A use must be equal, or refused with a reason. A difference in silence is reduced and
kept with its lines. A command that was stopped goes on where its record ends; several may share the work by models. The
exit code is 1 if a sequence differs in silence. `--write RECORD…` puts the figures into docs/figures/random-uses.md.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import re
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any


ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from marked_pages import write_part  # noqa: E402

from modular_converter.parallel.errors import ApplyError, PlanError, one_line  # noqa: E402
from tests.parallel.random_steps import TRAINED, Steps, Trainees, layouts_of, run_steps  # noqa: E402
from tests.parallel.random_uses import (  # noqa: E402
    DIFFERENT,
    EQUAL,
    ERROR,
    REFUSED,
    TYPES,
    Outcome,
    Pair,
    random_lines,
    reduced,
    run,
    subject_named,
)


_RAISED = re.compile(r"\[rank\d+\]: \S*(Error|Exception|Interrupt)\b")
"""The last line of a traceback, as torch writes it for a process of a group."""


@dataclass(frozen=True)
class Part:
    """A model on a number of ranks; ``layout`` is that of a group that trains, None for calls."""

    model: str
    ranks: int
    layout: str | None = None

    def choice(self, seed: int, number: int) -> random.Random:
        return random.Random(f"{seed} {self.model} {self.ranks} {self.layout} {number}")


class Record:
    """A file with a line for each sequence; that of the sequence under way is in a file beside it."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.seed, self.now = path, seed, path.with_suffix(".now")
        lines = path.read_text().splitlines() if path.exists() else []
        self.done = {
            (one["model"], one["ranks"], one["layout"], one["number"], one["seed"]) for one in map(json.loads, lines)
        }

    def missing(self, part: Part, count: int) -> Iterator[int]:
        return (n for n in range(count) if (part.model, part.ranks, part.layout, n, self.seed) not in self.done)

    def begin(self, part: Part, number: int) -> None:
        self.now.write_text(json.dumps({**asdict(part), "number": number}))

    def add(self, part: Part, number: int, outcome: Outcome, lines: list[str], start: float) -> None:
        import torch

        found = {**asdict(part), "number": number, "seed": self.seed, "seconds": round(time.time() - start, 2)}
        found["torch"] = torch.__version__
        found |= {"kind": outcome.kind, "at": outcome.at, "said": outcome.said}
        if outcome.kind in (DIFFERENT, ERROR):
            found["lines"] = lines
            print(
                f"{outcome.kind}: {part.model}, {part.ranks} ranks, {part.layout}: {outcome.said}",
                *lines,
                sep="\n    ",
                flush=True,
            )
        with self.path.open("a") as file:
            file.write(json.dumps(found) + "\n")
        self.now.unlink(missing_ok=True)

    def ended(self) -> bool:
        """Whether processes ended in a sequence, which becomes an error."""
        if not self.now.exists():
            return False
        found = json.loads(self.now.read_text())
        number = found.pop("number")
        said = [line for line in self.path.with_suffix(".errors").read_text().splitlines() if _RAISED.match(line)]
        reason = said[0] if said else "without an error of Python"
        self.add(Part(**found), number, Outcome(ERROR, -1, f"the processes ended: {reason}"), [], time.time())
        return True


def parts_of(names: list[str], ranks: list[int], kinds: list[str]) -> list[Part]:
    found = [Part(name, size) for size in ranks for name in names if "calls" in kinds and name in TYPES]
    if "steps" in kinds:
        trained = [(name, size) for size in ranks for name in names if name in TRAINED]
        found += [Part(name, size, one) for name, size in trained for one in layouts_of(size, TRAINED.index(name))]
    return found


def main() -> int:
    """Try the sequences; the exit code is 1 when one is different in silence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"model types, or own models ({' '.join(TYPES)})")
    parser.add_argument("--sequences", type=int, default=2000, help="of all parts together (2000)")
    parser.add_argument("--each", type=int, help="sequences of each model, number of ranks and layout")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--ranks", type=int, action="append", help="number of ranks; may be given again (2 and 3)")
    parser.add_argument("--kind", action="append", choices=("calls", "steps"), help="calls, steps or both (both)")
    parser.add_argument("--record", type=Path, default=Path("uses.jsonl"), help="file with the outcomes")
    parser.add_argument(
        "--write", type=Path, nargs="+", help="put the figures of these records into the docs, and end"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        text = figures(options.write)
        print(text)
        write_part(ROOT / "docs/figures/random-uses.md", "uses", text)
        return 0
    quiet()
    parts = parts_of(options.models or TYPES, options.ranks or [2, 3], options.kind or ["calls", "steps"])
    count = options.each or -(-options.sequences // len(parts))
    if options.inside:
        return tried_in_group([part for part in parts if part.layout == options.inside], count, options)
    record = Record(options.record, options.seed)
    ranks: Ranks | None = None
    for part in parts:
        if part.layout is not None or not list(record.missing(part, count)):
            continue
        ranks = ranks if ranks and ranks.number == part.ranks else Ranks(part.ranks)
        tried_calls(ranks, part, count, record)
    for part in parts:
        while part.layout is not None and list(Record(options.record, options.seed).missing(part, count)):
            before = len(Record(options.record, options.seed).done)
            in_group(part, options, count)
            record = Record(options.record, options.seed)
            if not record.ended() and len(record.done) == before:
                print(f"{part} was not started", flush=True)
                break
    if not options.record.exists():
        return 0
    print(figures([options.record]))
    return 1 if any(json.loads(line)["kind"] == DIFFERENT for line in options.record.read_text().splitlines()) else 0


def quiet() -> None:
    """No warnings and bars of the libraries."""
    from transformers.utils import logging

    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"


class Ranks:
    """CPU ranks for many models, which are started anew when a use has ended them."""

    def __init__(self, number: int) -> None:
        self.number, self.session = number, self._started(number)

    def _started(self, number: int) -> Any:
        from modular_converter.parallel.ranks.session import Session

        session = Session(("cpu",) * number, init_method="forkserver", limit_s=120.0)
        session.start()
        return session

    def pair(self, name: str) -> Pair:
        if self.session.ended:
            self.session = self._started(self.number)
        return Pair(subject_named(name), self.session)


def tried_calls(ranks: Ranks, part: Part, count: int, record: Record) -> None:
    """Try the sequences of calls of a model that the record lacks."""
    pair: Pair | None = None
    for number in record.missing(part, count):
        start = time.time()
        try:
            pair = ranks.pair(part.model) if pair is None or pair.session.ended else pair
        except Exception as error:
            print(f"{part.model} on {part.ranks}: {str(error).splitlines()[0][:200]}", flush=True)
            return
        choice = part.choice(record.seed, number)
        lines = random_lines(pair.subject, choice, choice.randint(2, 6))
        outcome = run(pair, lines)
        if outcome.kind == DIFFERENT:
            pair, outcome, lines = explained(ranks, pair, lines, outcome)
        record.add(part, number, outcome, lines, start)
    if pair is not None:
        pair.end()


def explained(ranks: Ranks, pair: Pair, lines: list[str], first: Outcome) -> tuple[Pair, Outcome, list[str]]:
    """A new pair, and the lines that still differ with it alone."""
    last = first

    def fails(fewer: list[str]) -> bool:
        nonlocal pair, last
        pair.end()
        pair = ranks.pair(pair.subject.name)
        outcome = run(pair, fewer)
        last = outcome if outcome.kind == DIFFERENT else last
        return outcome.kind == DIFFERENT

    if fails(lines):
        lines = reduced(lines, fails)
        return pair, last, lines
    return pair, Outcome(DIFFERENT, first.at, f"only after the sequences before it: {first.said}"), lines


def in_group(part: Part, options: argparse.Namespace, count: int) -> None:
    """Start the processes of a group that tries the steps of one part; if they end early, the file beside the record says why."""
    assert part.layout
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        str(part.ranks),
        "--rdzv-backend",
        "c10d",
    ]
    command += ["--rdzv-endpoint", "127.0.0.1:0", __file__, part.model, "--inside", part.layout, "--each", str(count)]
    command += [
        "--ranks",
        str(part.ranks),
        "--seed",
        str(options.seed),
        "--record",
        str(options.record),
        "--kind",
        "steps",
    ]
    folders = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "HF_HUB_OFFLINE": "1"}
    with options.record.with_suffix(".errors").open("w") as errors:
        subprocess.run(command, env=environment, check=False, stderr=errors)


def tried_in_group(parts: list[Part], count: int, options: argparse.Namespace) -> int:
    """The work of one process: the sequences of one layout, in step with the others."""
    from datetime import timedelta

    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    first = dist.get_rank() == 0
    record = Record(options.record, options.seed)
    for part in parts:
        missing = list(record.missing(part, count))
        try:
            trainees = Trainees(part.model, str(part.layout))
        except (ApplyError, PlanError) as error:  # on all processes
            for number in missing if first else ():
                said = f"parallelize: {one_line(error, 300)}"
                record.add(part, number, Outcome(REFUSED, -1, said), [], time.time())
            continue
        for number in missing:
            start = time.time()
            dist.barrier()
            if first:
                record.begin(part, number)
            choice = part.choice(options.seed, number)
            lines = Steps(trainees, choice).sequence(choice.randint(1, 4))
            outcome = run_steps(trainees, lines)
            if outcome.kind not in (EQUAL, DIFFERENT):  # a backward that was broken off leaves gradients behind
                trainees = Trainees(part.model, str(part.layout))
            if outcome.kind == DIFFERENT:
                lines = reduced(lines, functools.partial(differs, trainees))
            if first:
                record.add(part, number, outcome, lines, start)
    dist.barrier()
    dist.destroy_process_group()
    return 0


def differs(trainees: Trainees, lines: list[str]) -> bool:
    return run_steps(trainees, lines).kind == DIFFERENT


def figures(paths: list[Path]) -> str:
    """The figures of records as a table of the page."""
    import transformers

    found = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        counts[f"{one['model']}"][("steps: " if one["layout"] else "") + one["kind"]] += 1
    kinds = (EQUAL, REFUSED, ERROR, DIFFERENT)
    columns = [*kinds, *(f"steps: {kind}" for kind in kinds)]
    total = sum(counts.values(), Counter())
    seeds = sorted({one["seed"] for one in found})
    ranks = sorted({one["ranks"] for one in found})
    torch = ", ".join(sorted({one["torch"] for one in found}))
    lines = [
        f"{date.today()}, torch {torch}, transformers {transformers.__version__}: {len(found)} sequences (seed "
        f"{', '.join(map(str, seeds))}) on {', '.join(map(str, ranks))} CPU ranks, "
        f"{sum(one['seconds'] for one in found) / max(1, len(found)):.1f} s each.",
        "",
        f"| model | {' | '.join(columns)} |",
        f"|---{'|---' * len(columns)}|",
        *(
            f"| {name} | {' | '.join(str(one[kind]) for kind in columns)} |"
            for name, one in [*counts.items(), ("all", total)]
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
