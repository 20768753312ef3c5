"""Measure which changes of the code the tests notice: `python utils/mutate_code.py modular_converter/parallel/solve
--count 50`.

Makes small random changes, one at a time, in a copy of the repository, and runs tests for each: a comparison turned
round, a constant changed, a condition negated, `and` for `or`, a statement dropped. The tests are those of the changed
file's own folder below `tests/parallel` or `tests/unit`, or the ones behind `--`; of these those that execute the changed
statement, the quickest first. Prints the changes that no test noticed, and the share of those that one did. Exits with 1
below `--at-least`.

Annotations, assertions, the sizes of caches, `frozen=True` and imports for type checkers are not changed: a program that is
right does the same without them. Nor are `strict=True` of `zip`, a number in place of an `end_lineno` that only a type
checker misses, and a `return False` at the end of a function, whose result is as false without it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from code_changes import change_of


ROOT = Path(__file__).resolve().parent.parent
OWN = ("modular_converter", "tests", "utils")  # each run imports these from its own tree
SURVIVED = "survived  "


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    path: Path
    line: int
    before: str
    after: str
    header: range
    """The lines of the statement around it, without those of its body."""
    text: str
    """The whole file with the change."""
    on_import: bool = False
    """Whether the code runs when its file is imported: it stands in no body of a function."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.before} -> {self.after}"


def main() -> int:
    """Run the tests over the mutants that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="files and folders of our own to change")
    parser.add_argument("--count", type=int, default=50, help="mutants, drawn from all that there are")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--again", type=Path, help="what another run printed: try what survived there, and nothing else"
    )
    parser.add_argument("--at-least", type=float, default=0.0, help="the share to be noticed, in percent")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of a test beyond twice an unchanged one")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    options, tests = parser.parse_args(given[:split]), given[split + 1 :]
    everything = [place for path in source_files(options.paths) for place in places(path)]
    drawn = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
    if options.again:
        mutants = [*survivors(everything, options.again.read_text(encoding="utf-8"))]
    else:
        mutants = [*itertools.starmap(mutant_at, drawn)]  # all at once: files may change while the tests run
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_of_repository(Path(folder))
        known: dict[tuple[str, ...], Tests] = {}
        tried: list[Mutant] = []
        survived: list[Mutant] = []
        with contextlib.suppress(KeyboardInterrupt):  # the figures are of those until then
            for one in mutants:
                own = tuple(tests) or tests_of(one.path)
                known[own] = known.get(own) or recorded(tree, own)
                survived += [one] if survives(one, tree, known[own], options.limit) else []
                tried.append(one)
    share = 100 * (1 - len(survived) / max(len(tried), 1))
    print(f"{len(tried) - len(survived)} of {len(tried)} noticed, {share:.0f} of 100; {len(everything)} possible")
    return int(share < options.at_least)


def source_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The Python files at and below some paths, sorted."""
    for path in (one.resolve() for one in paths):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def survivors(found: Sequence[tuple[Path, int]], printed: str) -> Iterator[Mutant]:
    """The mutants at some places that another run has printed as unnoticed."""
    said = {line.removeprefix(SURVIVED) for line in printed.splitlines() if line.startswith(SURVIVED)}
    files = {line.partition(":")[0] for line in said}
    here = (mutant_at(path, number) for path, number in found if str(path.relative_to(ROOT)) in files)
    return (one for one in here if str(one) in said)


def copy_of_repository(folder: Path) -> Path:
    """A copy of the files that git knows, so that no change ever touches the working tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return folder


@dataclass(frozen=True)
class Tests:
    """Some tests, and the lines that each of them executes without a change."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[str, Sequence[int]]]
    """Test -> file, relative to the root -> the lines that it executes."""

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that execute the changed statement, the quickest first.

        Where none does, those that execute anything in its file; else all. At the top of a module, first those, then,
        as a table may be read from another file, all others.
        """
        path = str(mutant.path.relative_to(ROOT))
        inside = {one: files[path] for one, files in self.lines.items() if path in files}
        touching = [one for one, lines in inside.items() if any(line in mutant.header for line in lines)]
        chosen = touching or (() if mutant.on_import else inside) or self.lines
        return sorted(chosen, key=lambda one: (one not in inside, self.seconds[one], one))


def survives(mutant: Mutant, tree: Path, tests: Tests, limit: float) -> bool:
    """Whether the tests pass in spite of a change; says so at once. `limit` is added to twice the time of each."""
    place, chosen = tree / mutant.path.relative_to(ROOT), tests.of(mutant)
    original, facts = place.read_text(encoding="utf-8"), place.stat()
    place.write_text(mutant.text, encoding="utf-8")
    os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**10))  # bytecode is told by seconds and size
    try:
        survived = passes(tree, {one: limit + 2 * tests.seconds[one] for one in chosen})
    finally:
        place.write_text(original, encoding="utf-8")
        os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    if survived:
        print(f"{SURVIVED}{mutant}", flush=True)
    return survived


def tests_of(path: Path) -> tuple[str, ...]:
    """The folder of tests that stands for a file's folder, or for the nearest folder around it that has one."""
    _, *rooms = path.relative_to(ROOT).parent.parts
    base = ["tests"] if rooms[:1] == ["parallel"] else ["tests", "unit"]
    found = [Path(*base, *rooms[:count]) for count in range(len(rooms), -1, -1)]
    return (next(str(folder) for folder in found if (ROOT / folder).is_dir()),)


def recorded(tree: Path, tests: Sequence[str]) -> Tests:
    """The record of the tests without a change. Raises ``SystemExit`` if they fail.

    What they import from elsewhere is then imported here, once for all runs, which are forks of this process.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "lines"
        if not pytest_passes(tree, tests, {"LINES_OF_TESTS": str(target)}):
            raise SystemExit(f"The tests fail without any change: {' '.join(tests)}")
        found = json.loads(target.read_text())
    for module in found["modules"]:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    return Tests(*({test: one[key] for test, one in found["tests"].items()} for key in ("seconds", "lines")))


def passes(tree: Path, tests: Mapping[str, float]) -> bool:
    """Whether some tests, by their names, pass in this order, each within its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder) / "tests"
        chosen.write_text(json.dumps(tests))
        files = sorted({test.partition("::")[0] for test in tests})
        return pytest_passes(tree, files, {"CHOSEN_TESTS": str(chosen)})


def pytest_passes(tree: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether pytest succeeds in a tree. Only a run that records writes bytecode."""
    run = multiprocessing.get_context("fork").Process(target=_pytest, args=(tree, arguments, variables))
    run.start()
    run.join()
    assert run.pid
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)  # what the tests have started
    return run.exitcode == 0


def _pytest(tree: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
    os.setsid()
    os.chdir(tree)
    os.environ.update({"PYTHONPATH": str(tree), **variables})
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = "CHOSEN_TESTS" in variables
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    import pytest

    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "utils.lines_of_tests"]
    sys.exit(pytest.main([*options, *arguments]))


def places(path: Path) -> Iterator[tuple[Path, int]]:
    """The nodes of a file that can be changed, as numbers in the order of `ast.walk`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {id(one) for node in ast.walk(tree) for part in _silent_parts(node) for one in ast.walk(part)}
    silent |= {id(node.body[-1]) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _ends_false(node)}
    return (
        (path, number)
        for number, node in enumerate(ast.walk(tree))
        if id(node) not in silent and change_of(node) is not None
    )


def _silent_parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a node that are not changed, with all that is in them."""
    yield from (part for name in ("annotation", "returns") if (part := getattr(node, name, None)) is not None)
    if isinstance(node, ast.Assert):
        yield node
    if isinstance(node, ast.keyword) and node.arg in ("maxsize", "frozen", "strict"):
        yield node
    if isinstance(node, ast.BoolOp) and getattr(node.values[0], "attr", "") in ("end_lineno", "end_col_offset"):
        yield from node.values[1:]
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield node


def _ends_false(function: ast.FunctionDef) -> bool:
    """Whether the last statement is `return False` or `return None`."""
    last = function.body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    return isinstance(value, ast.Constant) and (value.value is None or value.value is False)


def mutant_at(path: Path, number: int) -> Mutant:
    """The file with one node changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(itertools.islice(ast.walk(tree), number, None))
    change = change_of(node)
    assert change is not None
    line, before, header = getattr(node, "lineno", 1), ast.unparse(node).partition("\n")[0], _header(tree, node)
    bodies = (one.body for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
    on_import = not any(part is node for body in bodies for inner in body for part in ast.walk(inner))
    changed = change(node)
    mutated = _Replace(node, changed).visit(tree) if changed is not node else tree
    text = ast.unparse(ast.fix_missing_locations(mutated)) + "\n"
    return Mutant(path, line, before, ast.unparse(changed).partition("\n")[0], header, text, on_import)


def _header(tree: ast.Module, node: ast.AST) -> range:
    """The lines of the innermost statement that holds a node, without those of its body."""
    statements = (one for one in ast.walk(tree) if isinstance(one, ast.stmt))  # outer ones first
    innermost = [one for one in statements if any(part is node for part in ast.walk(one))][-1]
    body = getattr(innermost, "body", None)
    end = max(innermost.lineno, body[0].lineno - 1) if body else innermost.end_lineno or innermost.lineno
    return range(innermost.lineno, end + 1)


class _Replace(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


if __name__ == "__main__":
    sys.exit(main())
