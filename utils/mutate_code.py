"""Measure which changes of the code the tests notice: `python utils/mutate_code.py modular_converter/parallel/solve
--count 50`.

Makes small random changes, one at a time, in a copy of the repository, and runs tests for each: a comparison turned
round, a constant changed, a condition negated, `and` for `or`, a statement dropped. The tests are the quick ones below
`tests/parallel` or `tests/unit`, or those behind `--`, which are recorded first, in about four times their time; of these
the ones that execute the changed statement, in any process: first those of the changed file's own folder, then the others,
the quickest first, until they take `--bound` seconds. Prints the changes that no test noticed, and the share of those that
one did. Exits with 1 below `--at-least`. `--workers` tries so many at once, each in a copy of its own. Tests that fail
without a change are named and left out. An interruption ends it with the figures until then, and names what was not tried
to the end.

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
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from code_changes import change_of


ROOT = Path(__file__).resolve().parent.parent
OWN = ("modular_converter", "tests", "utils")  # each run imports these from its own tree
SURVIVED, UNFINISHED = "survived  ", "unfinished  "
STOPPED = -1
FORKS = multiprocessing.get_context("fork")
# Processes that tests start say which lines they execute.
AT_START = "import utils.lines_of_processes\n"
# Imported once for all runs, which are forks. No more: ranks refuse a caller whose torch other libraries have changed.
COMMON = ("torch", "transformers.models.llama.modeling_llama")


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
    parser.add_argument("--bound", type=float, default=300.0, help="seconds of the tests of one change, as recorded")
    parser.add_argument("--workers", type=int, default=1, help="changes that are tried at once")
    given = sys.argv[1:]
    split = given.index("--") if "--" in given else len(given)
    options, tests = parser.parse_args(given[:split]), given[split + 1 :]
    everything = [place for path in source_files(options.paths) for place in places(path)]
    drawn = random.Random(options.seed).sample(everything, min(options.count, len(everything)))
    if options.again:
        mutants = [*survivors(everything, options.again.read_text(encoding="utf-8"))]
    else:
        mutants = [*map(mutant_at, drawn)]  # all at once: files may change while the tests run
    for module in COMMON:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    signal.signal(signal.SIGINT, _interrupt)  # ignored in the background of a script
    with tempfile.TemporaryDirectory() as folder:
        ended = tried_at_once(mutants, tests, options.workers, Path(folder), options.limit, options.bound)
    noticed = len(ended) - ended.count(None)
    share = 100 * noticed / max(len(ended), 1)
    print(f"{ended.count(0)} of {len(ended)} noticed by tests of their own folders")
    print(f"{noticed} of {len(ended)} noticed, {share:.0f} of 100; {len(everything)} possible")
    return int(share < options.at_least)


def _interrupt(*_: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # `timeout` sends it to the process and to its group
    raise KeyboardInterrupt


def tried_at_once(
    mutants: Sequence[Mutant], tests: Sequence[str], workers: int, folder: Path, limit: float, bound: float
) -> list[int | None]:
    """What noticed each mutant that was tried until the end or an interruption: 0 for tests of its own folder, 1 for
    others, None for nothing. Says which mutants were not noticed, and which not tried.

    Args:
        tests: instead of all those of the part.
        limit: seconds that are added to twice the time of each test.
        bound: seconds after which no further test of a mutant begins, as they took while they were recorded.
    """
    stop, noticed = FORKS.Event(), list[int | None]()
    asked = {one: tuple(tests) or (part_of(one.path),) for one in mutants}
    tasks = [*dict.fromkeys(task for one in asked.values() for task in tasks_of(one))]
    with ProcessPoolExecutor(workers, FORKS, _begin_worker, (folder, stop)) as pool:
        running: dict[Future[int | None], Mutant] = {}
        left: dict[Mutant, int] = {}
        try:
            records = dict(zip(tasks, pool.map(_record, tasks, itertools.repeat(10 * limit)), strict=True))
            known = {paths: joined([records[task] for task in tasks_of(paths)]) for paths in {*asked.values()}}
            if empty := [*itertools.chain(*(paths for paths, one in known.items() if not one.lines))]:
                raise SystemExit(f"No test passes without any change: {' '.join(empty)}")
            for one in mutants:
                groups = known[asked[one]].within(one, limit, bound)
                left[one] = len(known[asked[one]].of(one)) - sum(map(len, groups))
                running[pool.submit(_noticed, one, groups)] = one
            for ended in as_completed(running):
                one = running.pop(ended)
                noticed.append(_told(ended.result(), one, left[one]))
        except KeyboardInterrupt:
            stop.set()
            pool.shutdown(cancel_futures=True)
            begun = {future: one for future, one in running.items() if not future.cancelled()}
            for future, one in begun.items():
                if future.result() == STOPPED:
                    print(f"{UNFINISHED}{one}")
                else:
                    noticed.append(_told(future.result(), one, left[one]))
    return noticed


def _told(by: int | None, mutant: Mutant, left: int) -> int | None:
    if by is None:
        print(f"{SURVIVED}{mutant}", flush=True)
    if by is None and left:
        print(f"    not asked, by --bound: {left} tests that execute it", flush=True)
    return by


class _Worker:
    """What a process of the pool has for itself."""

    tree: Path
    stop: Any


def _begin_worker(folder: Path, stop: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process tells when to stop
    _Worker.tree, _Worker.stop = copy_of_repository(folder / str(os.getpid())), stop


def _record(task: str, limit: float) -> Tests:
    return recorded(_Worker.tree, [task], limit)


def _noticed(mutant: Mutant, groups: Sequence[Mapping[str, float]]) -> int | None:
    """Which group of tests notices a change, if one does."""
    by = noticed_by(mutant, _Worker.tree, groups)
    return STOPPED if _Worker.stop.is_set() else by


def source_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The Python files at and below some paths, sorted."""
    for path in (one.resolve() for one in paths):
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def survivors(found: Sequence[Place], printed: str) -> Iterator[Mutant]:
    """The mutants at some places that another run has printed as unnoticed."""
    lines = [line for line in printed.splitlines() if line.startswith((SURVIVED, UNFINISHED))]
    said = {line.removeprefix(SURVIVED).removeprefix(UNFINISHED) for line in lines}
    starts = {tuple(line.split(":")[:2]) for line in said}
    here = (mutant_at(one) for one in found if (str(one.path.relative_to(ROOT)), str(one.line)) in starts)
    return (one for one in here if str(one) in said)


def copy_of_repository(folder: Path) -> Path:
    """A copy of the files that git does not ignore, so that no change ever touches the working tree; all without git."""
    try:
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        found = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        names = [str(path) for path in found if not any(part.startswith(".") for part in path.parts)]
    for name in dict.fromkeys(name for name in names if (ROOT / name).is_file()):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    (folder / "sitecustomize.py").write_text(AT_START)
    return folder


@dataclass(frozen=True)
class Tests:
    """Some tests, and the lines that each of them executes without a change."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[str, Sequence[int]]]
    """Test -> file, relative to the root -> the lines that it executes."""

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that execute the changed statement, those of its own folder first, and the quickest.

        Where none does, those that execute anything in its file; else all. At the top of a module, first those, then,
        as a table may be read from another file, all others.
        """
        path = str(mutant.path.relative_to(ROOT))
        inside = {one: files[path] for one, files in self.lines.items() if path in files}
        touching = [one for one, lines in inside.items() if any(line in mutant.header for line in lines)]
        chosen = touching or (() if mutant.on_import else inside) or self.lines
        room = room_of(mutant.path)
        return sorted(chosen, key=lambda one: (one not in inside, not one.startswith(room), self.seconds[one], one))

    def within(self, mutant: Mutant, limit: float, bound: float) -> list[dict[str, float]]:
        """These tests, of the own folder and others, until a bound: test -> seconds that it may take."""
        own, others = dict[str, float](), dict[str, float]()
        for test in self.of(mutant):
            if (bound := bound - self.seconds[test]) < 0:
                break
            (own if test.startswith(room_of(mutant.path)) else others)[test] = limit + 2 * self.seconds[test]
        return [own, others]


def noticed_by(mutant: Mutant, tree: Path, groups: Sequence[Mapping[str, float]]) -> int | None:
    """The number of the first group with a test that fails with a change, each run within its seconds."""
    place = tree / mutant.path.relative_to(ROOT)
    original, facts = place.read_text(encoding="utf-8"), place.stat()
    place.write_text(mutant.text, encoding="utf-8")
    os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns + 10**10))  # bytecode is told by seconds and size
    try:
        return next((number for number, one in enumerate(groups) if one and not passes(tree, one)), None)
    finally:
        place.write_text(original, encoding="utf-8")
        os.utime(place, ns=(facts.st_atime_ns, facts.st_mtime_ns))


def part_of(path: Path) -> str:
    """The folder of the tests of a file's part."""
    return "tests/parallel/" if path.relative_to(ROOT).parts[1] == "parallel" else "tests/unit/"


def room_of(path: Path) -> str:
    """The folder of tests that stands for a file's folder, or for the nearest folder around it that has one."""
    part, rooms = Path(part_of(path)), path.relative_to(ROOT).parent.parts[1:]
    rooms = rooms[rooms[:1] == ("parallel",) :]
    found = [part.joinpath(*rooms[:count]) for count in range(len(rooms), -1, -1)]
    return f"{next((folder for folder in found if (ROOT / folder).is_dir()), part)}/"


def tasks_of(paths: Sequence[str]) -> list[str]:
    """The files with the tests of folders, the longest first, and all other arguments as they are."""
    found = {path: sorted((ROOT / path).rglob("test_*.py"), key=lambda one: -one.stat().st_size) for path in paths}
    return [task for path in paths for task in [str(one.relative_to(ROOT)) for one in found[path]] or [path]]


def recorded(tree: Path, tests: Sequence[str], limit: float) -> Tests:
    """The record of the tests that pass without a change, each within some seconds; says which do not."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "lines"
        pytest_passes(tree, tests, {"LINES_OF_TESTS": str(target), "LIMIT_OF_TESTS": str(limit)})
        nothing: dict[str, Any] = {"tests": {}, "failed": tests}
        found: dict[str, Any] = json.loads(target.read_text()) if target.exists() else nothing
        why = "fails"
        if found is nothing:
            why = f"ends the process, or has a test of more than {limit:.0f} s (ten times --limit),"
    for test in found["failed"]:
        print(f"{why} without any change: {test}", flush=True)
    return Tests(*({test: one[key] for test, one in found["tests"].items()} for key in ("seconds", "lines")))


def joined(records: Sequence[Tests]) -> Tests:
    """The records of several files as one."""
    seconds = {test: number for one in records for test, number in one.seconds.items()}
    return Tests(seconds, {test: lines for one in records for test, lines in one.lines.items()})


def passes(tree: Path, tests: Mapping[str, float]) -> bool:
    """Whether some tests, by their names, pass in this order, each within its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        chosen = Path(folder) / "tests"
        chosen.write_text(json.dumps(tests))
        files = sorted({test.partition("::")[0] for test in tests})
        return pytest_passes(tree, files, {"CHOSEN_TESTS": str(chosen)})


def pytest_passes(tree: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> bool:
    """Whether pytest succeeds in a tree. Only a run that records writes bytecode."""
    run = FORKS.Process(target=_pytest, args=(tree, arguments, variables))
    run.start()
    assert run.pid
    stop = getattr(_Worker, "stop", None)
    while run.is_alive() and not (stop and stop.is_set()):
        run.join(0.5)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)  # what the tests have started
    run.kill()  # which may have no group of its own yet
    run.join()
    return run.exitcode == 0


def _pytest(tree: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
    os.setsid()
    os.chdir(tree)
    os.environ.update({"PYTHONPATH": str(tree), **variables})
    sys.path.insert(0, str(tree))
    if "CHOSEN_TESTS" in variables:  # of two mutants of one size, the second would run the first's bytecode
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # for the processes that tests start
    for name in [name for name in sys.modules if name.partition(".")[0] in OWN]:
        del sys.modules[name]
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (1, 2):
        os.dup2(sys.stdout.fileno(), stream)
    import pytest

    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-p", "utils.lines_of_tests"]
    sys.exit(pytest.main([*options, *(["-x"] if "CHOSEN_TESTS" in variables else []), *arguments]))


class Place(NamedTuple):
    """A node of a file that can be changed, by its number in the order of `ast.walk`."""

    path: Path
    number: int
    line: int


def places(path: Path) -> Iterator[Place]:
    """The nodes of a file that can be changed."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    silent = {id(one) for node in ast.walk(tree) for part in _silent_parts(node) for one in ast.walk(part)}
    silent |= {id(node.body[-1]) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _ends_false(node)}
    return (
        Place(path, number, getattr(node, "lineno", 1))
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


def mutant_at(place: Place) -> Mutant:
    """A file with one node changed."""
    path, number, line = place
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = next(itertools.islice(ast.walk(tree), number, None))
    change = change_of(node)
    assert change is not None
    before = ast.unparse(node).partition("\n")[0]
    parents = {id(child): one for one in ast.walk(tree) for child in ast.iter_child_nodes(one)}
    around = [node]
    while parent := parents.get(id(around[-1])):
        around.append(parent)
    header = _header(next(one for one in around if isinstance(one, (ast.stmt, ast.Module))))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    on_import = not any(
        isinstance(outer, functions) and inner in outer.body for inner, outer in itertools.pairwise(around)
    )
    changed = change(node)
    mutated = _Replace(node, changed).visit(tree) if changed is not node else tree
    text = ast.unparse(ast.fix_missing_locations(mutated)) + "\n"
    return Mutant(path, line, before, ast.unparse(changed).partition("\n")[0], header, text, on_import)


def _header(statement: ast.AST) -> range:
    """The lines of a statement without those of its body."""
    body = getattr(statement, "body", None)
    first = getattr(statement, "lineno", 1)
    end = max(first, body[0].lineno - 1) if body else getattr(statement, "end_lineno", None) or first
    return range(first, end + 1)


class _Replace(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else self.generic_visit(node)


if __name__ == "__main__":
    sys.exit(main())
