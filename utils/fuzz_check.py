"""Compare the verdicts of the check with a cache, without one, and of a fresh process elsewhere, after random edits.

    python utils/fuzz_check.py --edits 10000 --seed 1 [--models FOLDER]

Edits change files, links, folders, settings, the formatter and the state of git; some are failures of `--fix`. Verdicts
hold the exit code and all errors. From time to time each file is converted alone where the check finds nothing, and
`--changed-since` is asked where it finds something: the first commit is clean, so it has to find something too.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
from fuzz_edits import EDITS, Tree, restore

from modular_converter import convert_file
from modular_converter.check.run import CheckOptions, check
from modular_converter.diagnostics import ConversionError


MODELS = Path(__file__).parents[1] / "models"


def verdict(root: Path, cache: str | None, since: str | None = None) -> list[str]:
    """The exit code and the errors of a check, with paths relative to the tree."""
    found = check(CheckOptions(root=str(root), cache=cache, errors_only=True, changed_since=since))
    errors = sorted(repr(one) for one in found.diagnostics if one.is_error)
    return [str(found.exit_code), *(one.replace(str(root), "ROOT") for one in errors)]


SAMPLE = 5
"""One edit in so many is followed by the longer comparisons."""


def fresh_verdict(root: Path, elsewhere: Path) -> list[str]:
    """The verdict of a new process about a copy in another folder."""
    copy = elsewhere / "copy"
    subprocess.run(["cp", "-a", str(root), str(copy)], check=True)  # `shutil` copies no pipes
    try:
        code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import fuzz_check, pathlib;"
        code += "print(*map(ascii, fuzz_check.verdict(pathlib.Path(sys.argv[1]), None)), sep='\\n')"
        done = subprocess.run([sys.executable, "-c", code, str(copy)], capture_output=True, text=True, check=False)
        return done.stdout.splitlines() or [done.stderr]
    finally:
        shutil.rmtree(copy)


def stale_files(tree: Tree) -> Iterator[str]:
    """The generated files that differ from those of each modular file converted alone."""
    for modular in tree.files("modular_*.py"):
        conversion = convert_file(modular)
        for path, text in conversion.files.items():
            if not os.path.isfile(path) or Path(path).read_bytes() != text.encode():
                yield path


@dataclass
class Figures:
    """What a run of edits has shown."""

    edits: Counter[str] = field(default_factory=Counter)
    exit_codes: Counter[str] = field(default_factory=Counter)
    fresh: int = 0
    alone: int = 0
    since: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{number} with exit code {code}" for code, number in sorted(self.exit_codes.items()))
        return (
            f"{self.edits.total()} edits, {self.exit_codes.total()} comparisons with a cache and without ({codes}), "
            f"{self.fresh} with a fresh process, {self.alone} with each file alone, {self.since} with --changed-since, "
            f"{len(self.failures)} failures"
        )


def compare(tree: Tree, elsewhere: Path, figures: Figures, number: int, fresh_every: int) -> None:
    """Compare the verdicts about a tree as it is after edit `number`."""
    warm, cold = verdict(tree.root, tree.cache), verdict(tree.root, None)
    figures.exit_codes[cold[0]] += 1
    if warm != cold:
        figures.failures.append(f"warm {warm}\n  cold {cold}")
    if number % fresh_every == 0:
        figures.fresh += 1
        if (other := fresh_verdict(tree.root, elsewhere)) != [ascii(line) for line in cold]:
            figures.failures.append(f"cold {cold}\n  fresh {other}")
    if number % SAMPLE == 0 and cold[0] == "0":
        figures.alone += 1
        figures.failures += (f"stale with exit code 0: {path}" for path in stale_files(tree))
    if number % SAMPLE == 1 and cold[0] != "0":
        figures.since += 1
        if (since := verdict(tree.root, tree.cache, "first"))[0] == "0":
            figures.failures.append(f"cold {cold}\n  since the first commit {since}")


def fuzz(models: Path | None, edits: int, seed: int, fresh_every: int = 10) -> Figures:
    """Edit a copy of a folder of models, or small models, at random, and compare the verdicts after each edit."""
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="fuzz-check-") as folder:
        tree, elsewhere = Tree.copied(models, Path(folder), seed), Path(folder, "elsewhere")
        elsewhere.mkdir()
        for number in range(1, edits + 1):
            if number % 100 == 0:
                print(figures, flush=True)
            edit = tree.random.choices(list(EDITS), list(EDITS.values()))[0]
            try:
                edit(tree)
            except (LookupError, OSError, ConversionError):
                restore(tree)
            figures.edits[edit.__name__] += 1
            before = len(figures.failures)
            compare(tree, elsewhere, figures, number, fresh_every)
            for failure in figures.failures[before:]:
                print(f"seed {seed}, edit {number} ({edit.__name__}): {failure}", flush=True)
    return figures


@click.command()
@click.option("--edits", default=100, show_default=True, help="How many edits to make.")
@click.option("--seed", type=int, help="The seed of the edits; another one in each run when left out.")
@click.option("--models", type=click.Path(exists=True, path_type=Path), help="The folder to copy; else small models.")
@click.option("--fresh-every", default=50, show_default=True, help="After how many edits to start a fresh process.")
def main(edits: int, seed: int | None, models: Path | None, fresh_every: int) -> None:
    """Compare the verdicts of the check after random edits; exit with 1 where they differ."""
    seed = random.randrange(1_000_000) if seed is None else seed
    print(f"seed {seed}", flush=True)
    start = time.perf_counter()
    figures = fuzz(models, edits, seed, fresh_every)
    print(f"{figures}, {time.perf_counter() - start:.0f} s")
    sys.exit(bool(figures.failures))


if __name__ == "__main__":
    main()
