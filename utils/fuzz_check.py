"""Compare the verdicts of the check with a cache, without one, and of a fresh process elsewhere, after random edits.

    python utils/fuzz_check.py --edits 10000 --seed 1 [--first 1] [--library FOLDER]

Edits change files, links, folders, settings, the formatter and the state of git; some are failures of `--write`. A
hundred edits are a walk: it starts from a tree of its own, either small models, those of this repository, or some of a
published library, and depends on the seed and its number alone, so that `--first` goes on where a run has ended.

Verdicts hold the exit code and all findings, and three are compared after each edit: with the cache of all edits before,
without, and by a process that has checked nothing before, about a copy in another folder. From time to time a new
interpreter is asked, each file is converted alone where the check finds nothing, and `--changed-since` is asked where
it finds something: the first commit is clean, so it has to find something too.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from fuzz_edits import EDITS
from fuzz_failures import begin_again
from fuzz_fresh import FreshProcesses, verdict
from fuzz_tree import Tree

from modular_converter import convert_file
from modular_converter.files.read import find_package
from modular_converter.files.write import path_of_generated
from modular_converter.findings import ConversionError
from modular_converter.settings.load import load_settings


WALK = 100
"""Edits of one tree, from its first commit on."""
SAMPLE = 5
"""One edit in so many is followed by the longer comparisons."""
STARTED = 50
"""One edit in so many is followed by the start of a new interpreter."""


@dataclass
class Figures:
    """The results of a run of edits."""

    trees: Counter[str] = field(default_factory=Counter)
    edits: Counter[str] = field(default_factory=Counter)
    exit_codes: Counter[str] = field(default_factory=Counter)
    started: int = 0
    alone: int = 0
    since: int = 0
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{number} with exit code {code}" for code, number in sorted(self.exit_codes.items()))
        trees = ", ".join(f"{number} of {kind}" for kind, number in sorted(self.trees.items()))
        return (
            f"{self.edits.total()} edits ({trees}), {self.exit_codes.total()} comparisons of three verdicts ({codes}), "
            f"{self.started} with a new interpreter, {self.alone} with each file alone, {self.since} with "
            f"--changed-since, {len(self.failures)} failures"
        )


def stale_files(tree: Tree) -> Iterator[str]:
    """The generated files that differ from those of each modular file converted alone."""
    for modular in tree.files("modular_*.py"):
        settings = load_settings(modular)
        for path, text in convert_file(modular).files.items():
            target = path_of_generated(path, settings)
            if not os.path.isfile(target) or Path(target).read_bytes() != text.encode():
                yield target


def compare(tree: Tree, fresh: FreshProcesses, figures: Figures, number: int) -> None:
    """Compare the verdicts about a tree as it is after edit `number`."""
    fresh.ask(tree.root)
    warm, cold, other = verdict(tree.root, tree.cache), verdict(tree.root, None), fresh.verdict()
    figures.exit_codes[cold[0]] += 1
    if warm != cold:
        figures.failures.append(f"warm {warm}\n  cold {cold}")
    if other != cold:
        figures.failures.append(f"cold {cold}\n  fresh {other}")
    if number % STARTED == 0:
        figures.started += 1
        if (other := fresh.started(tree.root)) != cold:
            figures.failures.append(f"cold {cold}\n  started {other}")
    if number % SAMPLE == 0 and cold[0] == "0":
        figures.alone += 1
        figures.failures += (f"stale with exit code 0: {path}" for path in stale_files(tree))
    if number % SAMPLE == 1 and cold[0] != "0":
        figures.since += 1
        if (since := verdict(tree.root, tree.cache, "first"))[0] == "0":
            figures.failures.append(f"cold {cold}\n  since the first commit {since}")


def walk(kind: str, seed: str, edits: range, figures: Figures) -> None:
    """Edit one tree, and compare the verdicts after each edit."""
    with tempfile.TemporaryDirectory(prefix="fuzz-check-") as name:
        folder = Path(os.path.realpath(name))
        (folder / "programs").mkdir()
        path = os.environ["PATH"]
        os.environ["PATH"] = f"{os.path.dirname(shutil.which('git') or '')}{os.pathsep}{folder / 'programs'}"
        fresh = FreshProcesses(folder / "elsewhere/deeper")
        try:
            tree = Tree.copied(kind, folder, folder / "programs", seed)
            for number in edits:
                edit = tree.random.choices(list(EDITS), list(EDITS.values()))[0]
                try:
                    edit(tree)
                except (LookupError, OSError, ConversionError):
                    begin_again(tree)
                figures.trees[os.path.basename(os.path.dirname(kind)) or kind] += 1
                figures.edits[edit.__name__] += 1
                before = len(figures.failures)
                compare(tree, fresh, figures, number)
                for failure in figures.failures[before:]:
                    print(f"seed {seed}, edit {number} ({edit.__name__}): {failure}", flush=True)
        finally:
            os.environ["PATH"] = path
            fresh.close()


def fuzz(kinds: Sequence[str], edits: range, seed: int) -> Figures:
    """Make random edits, a walk for each hundred, and compare the verdicts after each edit.

    Args:
        kinds: see `Tree.copied`; each walk has one of them.
        edits: the numbers of the edits; a part of a walk begins at its start.
        seed: decides all walks.
    """
    figures = Figures()
    for start in range(edits.start - (edits.start - 1) % WALK, edits.stop, WALK):
        kind = random.Random(f"{seed}-{start}").choice(kinds)
        walk(kind, f"{seed}-{start}", range(start, min(start + WALK, edits.stop)), figures)
        print(figures, flush=True)
    return figures


def installed_models() -> str:
    """The models of the installed library; "" where it is not installed."""
    package = find_package("transformers", os.getcwd())
    return os.path.join(package, "models") if package else ""


@click.command()
@click.option("--edits", default=100, show_default=True, help="The number of the last edit.")
@click.option("--first", default=1, show_default=True, help="The number of the first edit, to go on after a run.")
@click.option("--seed", type=int, help="The seed of the edits; another one in each run when left out.")
@click.option("--library", default=installed_models, help="Models of a library to take some from; '' for none.")
def main(edits: int, first: int, seed: int | None, library: str) -> None:
    """Compare the verdicts of the check after random edits; exit with 1 where they differ."""
    seed = random.randrange(1_000_000) if seed is None else seed
    print(f"seed {seed}", flush=True)
    start = time.perf_counter()
    kinds = [*["small"] * 4, "zoo", *[library] * (5 if library else 0)]
    figures = fuzz(kinds, range(first, edits + 1), seed)
    print(f"{figures}, {time.perf_counter() - start:.0f} s")
    sys.exit(bool(figures.failures))


if __name__ == "__main__":
    main()
