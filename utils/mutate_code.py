"""Measure what the tests notice: `python utils/mutate_code.py modular_converter/parallel/solve --count 50`.

Makes small random changes, one at a time, in a copy of the repository, and runs tests for each: a comparison turned
round, a constant changed, a condition negated, `and` for `or`, a statement dropped. The tests are those of the changed
file's own folder below `tests/parallel` or `tests/unit`, or the ones behind `--`. Prints the changes that no test noticed,
and the share of those that one did. Exits with 1 below `--at-least`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


ROOT = Path(__file__).resolve().parent.parent
OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Raise, ast.Continue, ast.Break)


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path
    line: int
    before: str
    after: str
    text: str
    """The whole file with the change."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.before} -> {self.after}"


def main() -> int:
    """Run the tests over the mutants that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="files and folders of our own to change")
    parser.add_argument("--count", type=int, default=50, help="mutants, drawn from all that there are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-least", type=float, default=0.0, help="the share to be noticed, in percent")
    parser.add_argument(
        "--limit", type=float, default=60.0, help="seconds a run may take beyond twice an unchanged one"
    )
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    options, tests = parser.parse_args(given[:split]), given[split + 1 :]
    everything = [place for path in source_files(options.paths) for place in places(path)]
    drawn = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
    chosen = [mutant_at(path, number) for path, number in drawn]
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_repository(Path(folder))
        limits: dict[tuple[str, ...], float] = {}
        tried: list[Mutant] = []
        survived: list[Mutant] = []
        with contextlib.suppress(KeyboardInterrupt):  # the figures are of those until then
            for one in chosen:
                own = tuple(tests) or tests_of(one.path)
                if own not in limits:
                    limits[own] = options.limit + 2 * unchanged_seconds(tree, own)
                survived += [one] if survives(one, tree, own, limits[own]) else []
                tried.append(one)
    share = 100 * (1 - len(survived) / max(len(tried), 1))
    print(f"{len(tried) - len(survived)} of {len(tried)} noticed, {share:.0f} of 100; {len(everything)} possible")
    return int(share < options.at_least)


def source_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The Python files at and below some paths, sorted."""
    for path in (one.resolve() for one in paths):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def copy_of_repository(folder: Path) -> Path:
    """A copy of the files that git knows, so that no change ever touches the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return folder


def survives(mutant: Mutant, tree: Path, tests: Sequence[str], limit: float) -> bool:
    """Whether the tests pass in spite of a change; says so at once."""
    place = tree / mutant.path.relative_to(ROOT)
    original = place.read_text(encoding="utf-8")
    place.write_text(mutant.text, encoding="utf-8")
    try:
        survived = passes(tree, tests, limit)
    finally:
        place.write_text(original, encoding="utf-8")
    if survived:
        print(f"survived  {mutant}", flush=True)
    return survived


def tests_of(path: Path) -> tuple[str, ...]:
    """The folder of tests that stands for a file's folder, or for the nearest folder around it that has one."""
    _, *rooms = path.relative_to(ROOT).parent.parts
    base = ["tests"] if rooms[:1] == ["parallel"] else ["tests", "unit"]
    found = [Path(*base, *rooms[:count]) for count in range(len(rooms), -1, -1)]
    return (next(str(folder) for folder in found if (ROOT / folder).is_dir()),)


def unchanged_seconds(tree: Path, tests: Sequence[str]) -> float:
    """The seconds that the tests take without a change. Raises ``SystemExit`` if they fail."""
    start = time.monotonic()
    if not passes(tree, tests, None):
        raise SystemExit(f"The tests fail without any change: {' '.join(tests)}")
    return time.monotonic() - start


def passes(tree: Path, tests: Sequence[str], limit: float | None) -> bool:
    """Whether the tests of a tree pass; a run without an end does not."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        return subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=limit).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def places(path: Path) -> Iterator[tuple[Path, int]]:
    """The nodes of a file that can be changed, as numbers in the order of `ast.walk`."""
    nodes = enumerate(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return ((path, number) for number, node in nodes if change_of(node) is not None)


def mutant_at(path: Path, number: int) -> Mutant:
    """The file with one node changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(itertools.islice(ast.walk(tree), number, None))
    change = change_of(node)
    assert change is not None
    line, before = getattr(node, "lineno", 1), ast.unparse(node).partition("\n")[0]
    changed = change(node)
    mutated = _Replace(node, changed).visit(tree) if changed is not node else tree
    text = ast.unparse(ast.fix_missing_locations(mutated)) + "\n"
    return Mutant(path, line, before, ast.unparse(changed).partition("\n")[0], text)


def change_of(node: ast.AST) -> Callable[[ast.AST], ast.AST] | None:
    """The way to change a node, which gives it or what takes its place; None for one that stays."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _turn_round
    if isinstance(node, ast.BoolOp):
        return _swap
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        return _negate
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        return _other_constant
    if isinstance(node, DROPPED) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return lambda dropped: ast.Pass()
    return None


def _turn_round(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Compare)
    node.ops = [OPPOSITES[type(node.ops[0])]()]
    return node


def _swap(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BoolOp)
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return node


def _negate(node: ast.AST) -> ast.AST:
    assert isinstance(node, (ast.If, ast.IfExp, ast.While))
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _other_constant(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    return node


class _Replace(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


if __name__ == "__main__":
    sys.exit(main())
