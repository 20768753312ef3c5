"""Compare conversions with the files on disk; whether two texts differ by layout alone."""

from __future__ import annotations

import ast
import inspect
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from modular_converter.files.write import current_text, path_of_generated
from modular_converter.findings import EXISTS, MISSING, UNPARSABLE, Conversion, ConversionError, Finding
from modular_converter.model import lexer
from modular_converter.model.nodes import parse
from modular_converter.settings.values import Settings


class StaleFile(NamedTuple):
    """A generated file whose text differs from its conversion."""

    path: str
    """Its path as the conversion names it: beside the modular file."""
    target: str
    """Where it is written."""
    conversion: Conversion
    old: str | None
    """Its text on disk; None for a file that is missing."""
    new: str

    @property
    def sources(self) -> set[str]:
        """The files that it is made from, but for those that its modular file gives itself."""
        contents = (path for path, seen in self.conversion.reads.items() if seen not in (MISSING, EXISTS))
        return {path for path in contents if path not in self.conversion.files}


class Difference(NamedTuple):
    """A stale file with the findings about it."""

    path: str
    modular: str
    old: str | None
    """None for a file that is missing."""
    new: str
    findings: tuple[Finding, ...]
    """One of its own, unless it differs only as others do, and those that it shares with them."""
    is_shown: bool = True
    """Whether a reader learns something from its diff: of files that differ alike, one is enough."""


def compare(conversions: Iterable[Conversion], settings: Settings) -> tuple[list[StaleFile], list[Finding]]:
    """The generated files that differ from these conversions, sorted by path, and the findings about unreadable files."""
    stale: list[StaleFile] = []
    unreadable: list[Finding] = []
    for conversion in conversions:
        for path, new in conversion.files.items():
            target = path_of_generated(path, settings)
            try:
                old = current_text(target, settings)
            except ConversionError as error:
                unreadable += error.findings
                continue
            if old != new:
                stale.append(StaleFile(path, target, conversion, old, new))
    return sorted(stale, key=lambda one: one.path), unreadable


_BETWEEN = re.compile(r"\n\n\n(?=\S)")
"""The blank lines above a definition of a formatted file."""
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def differ_by_layout_alone(old: str, new: str) -> bool:
    """Whether both texts have the same syntax tree and the same comments in the same order.

    The indentation of docstrings, line breaks, quotes and parentheses are layout. A text that is not Python has none.
    """
    for before, after in (differing_texts(old, new), (old, new)):
        try:
            if _tree(before) != _tree(after):
                return False
            return [one for _, one in comments_of(before)] == [one for _, one in comments_of(after)]
        except UNPARSABLE:
            continue  # cut within a statement, or no Python at all
    return False


def differing_texts(old: str, new: str) -> tuple[str, str]:
    """The texts without their common definitions at the start and the end; the whole texts if the common start ends in
    a string.

    Most stale files differ in one class, and the trees of two whole files take 0.1 s.
    """
    olds, news = re.split(_BETWEEN, old), re.split(_BETWEEN, new)
    first = len(os.path.commonprefix([olds, news]))
    last = len(os.path.commonprefix([olds[:first:-1], news[:first:-1]]))
    try:
        parse("\n\n\n".join(olds[:first]))
    except UNPARSABLE:
        return old, new
    before, after = ("\n\n\n".join(some[first : len(some) - last]) for some in (olds, news))
    return before, after


def _tree(text: str) -> str:
    """The syntax tree as text, without places; docstrings as `help` would show them."""
    tree = parse(text)
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            constant = node.body[0].value  # type: ignore[attr-defined]
            constant.value = "\n".join(line.rstrip() for line in inspect.cleandoc(constant.value).splitlines())
        elif isinstance(node, ast.Delete) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
            node.targets = node.targets[0].elts  # `del (a, b)` is `del a, b`
    return ast.dump(tree)


def comments_of(text: str) -> list[tuple[int, str]]:
    """The comments in order, each with its line and without the blanks around its words."""
    found = ((one, line) for one, line, _ in lexer.placed_tokens(text) if one.kind == "comment")
    return [(line + 1, text[one.start : one.end].lstrip("#").strip()) for one, line in found]
