"""An import inside of a function loads something that its file does not load anyway, and that takes time."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


PACKAGE = Path(__file__).parents[2] / "modular_converter"
SLOW = {
    "concurrent",
    "datetime",
    "difflib",
    "importlib",
    "json",
    "multiprocessing",
    "subprocess",
    "tempfile",
    "tomllib",
}
SLOW |= {"urllib"}
"""Packages of the standard library whose import takes 10 ms or more (see docs/architecture.md)."""


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {dotted(path): path for path in sorted(PACKAGE.rglob("*.py"))}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, *, late: bool) -> Iterator[tuple[int, str]]:
    """Line and module of each import: of those inside of functions if `late`, else of those that always run."""
    for node in statements(parsed(path).body, late, False):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from ((node.lineno, name if name in FILES else str(node.module)) for name in names)


def statements(body: Iterable[ast.AST], late: bool, inside: bool) -> Iterator[ast.AST]:
    """Those inside of functions if `late`, else the others, without those for type checkers."""
    for node in body:
        if inside is late:
            yield node
        if inside or not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            for part in ("body", "handlers", "orelse", "finalbody", "cases"):
                deeper = inside or isinstance(node, ast.FunctionDef)
                yield from statements(getattr(node, part, ()), late, deeper)


@functools.cache
def always(name: str) -> set[str]:
    """The modules that are imported with a file of this package in any case; of other modules, none is followed."""
    return {module for _, module in imports(FILES[name], late=False)} if name in FILES else set()


@functools.cache
def loaded(module: str) -> set[str]:
    """All modules that are imported with one."""
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name and name not in found:
            found.add(name)
            waiting += [*always(name), name.rpartition(".")[0] if name in FILES else ""]
    return found


def counts(module: str) -> bool:
    """Whether loading a module takes time."""
    top = module.partition(".")[0]
    return top in SLOW or top not in sys.stdlib_module_names


def test_a_late_import_saves_time() -> None:
    early = [
        f"{path}:{line}: import {module} at the top"
        for name, path in FILES.items()
        for line, module in imports(path, late=True)
        if not any(map(counts, loaded(module) - loaded(name)))
    ]
    assert FILES and not early
