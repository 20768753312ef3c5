"""Which modular file needs the generated files of which other, and in what order they can be converted."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence

from modular_converter.convert.inherit.resolve import module_path, neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Role
from modular_converter.diagnostics import ConversionError
from modular_converter.settings.kinds import split_stem
from modular_converter.settings.values import Settings


_GAP = r"(?:[ \t\f]|\\\n)*"
_FROM = re.compile(rf"from(?!\w)((?:[ \t\f.]|\\\n)*\w+(?:{_GAP}\.{_GAP}\w+)*){_GAP}(?<!\w)import\b")
"""The start of an import, spaced and continued in any way that Python allows, or words that look like one.

Here and below, a stranger's file must not take forever: nothing is tried in two ways, and lengths are bounded.
"""
_IMPORT_MODELS = re.compile(r"import(?=[ \t\f\\])(?:[^\n;\\#'\"()]|\\\n){0,300}?\bmodels[ \t\f\\\n]*\.")
_NAMES = rf"{_GAP}(\([\w\s,]*(?:#[^\n]*\n[\w\s,]*)*\)|(?:[^\n;\\(]|\\\n)*)"
_FROM_WITH_NAMES = re.compile(_FROM.pattern + _NAMES)
_BASES = re.compile(r"class[ \t\f]+\w+[ \t\f]*(?:\[[^\]\n]*\][ \t\f]*)?\((.{0,1000}?)\)[ \t\f]*:", re.DOTALL)
_WORD = re.compile(r"\w+")


def required_files(path: str, library: Library) -> frozenset[str]:
    """The neighbour files that a modular file imports from; none for an unreadable file.

    Of a file that is no Python, those that its text tells of.
    """
    try:
        modules = _imported_neighbours(path, library)
    except ConversionError:
        return frozenset()
    folder = os.path.dirname(path)
    return frozenset(found for module in modules if (found := module_path(module, folder)))


def _imported_neighbours(path: str, library: Library) -> set[str]:
    """The neighbours that the top level imports. A file is parsed only where its text leaves a doubt: that takes long."""
    text, settings = library.text(path), library.settings
    found: set[str] = set()
    doubtful = _IMPORT_MODELS.search(text) is not None
    quotes = _Quotes(text)
    for match in _FROM.finditer(text):
        module = _spelt(match[1])
        if not neighbour_module(module, settings):
            continue
        doubt = _doubt(text, match.start())
        if doubt is not None:
            found.add(module)
            doubtful = doubtful or doubt or quotes.are_open(match.start())
    if not doubtful:
        return found
    try:
        statements = library.module(path).statements
    except ConversionError:
        return found
    imported = {name.module for one in statements if one.role is Role.IMPORT for name in one.imports}
    return {module for module in imported if neighbour_module(module, settings)}


def _spelt(module: str) -> str:
    """A module's name as Python reads it: `.. llama . modeling_llama` -> `..llama.modeling_llama`."""
    return unicodedata.normalize("NFKC", re.sub(r"[\s\\]+", "", module))


def _doubt(text: str, start: int) -> bool | None:
    """Whether it is in doubt that a statement of the top level starts there; None where surely none does."""
    line = text.rfind("\n", 0, start) + 1
    before = text[line:start]
    if ";" in before or "\f" in before or text.endswith("\\\n", 0, line):
        return True
    return None if before else False  # indented, or amid other words


class _Quotes:
    """Whether a string of several lines may be open at a place. Places are asked for in order."""

    def __init__(self, text: str) -> None:
        self._text, self._place, self._numbers = text, 0, [0, 0]

    def are_open(self, place: int) -> bool:
        for kind, quotes in enumerate(('"""', "'''")):
            self._numbers[kind] += self._text.count(quotes, self._place, place)
        self._place = place
        return any(number % 2 for number in self._numbers)


def ancestor_files(path: str, library: Library) -> frozenset[str]:
    """The files that the bases of a file's classes are imported from, be they there or not.

    A conversion follows them when a modular file removes attributes, since it has to know which ones there are.
    """
    try:
        text = library.text(path)
    except ConversionError:
        return frozenset()
    bases = {word for header in _BASES.finditer(text) for word in _WORD.findall(header[1])}
    modules = {
        _spelt(one[1]) for one in _FROM_WITH_NAMES.finditer(text) if not bases.isdisjoint(_WORD.findall(one[2]))
    }
    folder = os.path.dirname(path)
    return frozenset(found for module in modules if (found := module_path(module, folder)))


def removes_attributes(path: str, library: Library) -> bool:
    """Whether a modular file may remove attributes of a parent."""
    try:
        return "AttributeError" in library.text(path)
    except ConversionError:
        return False


def modular_of(path: str, settings: Settings) -> str:
    """The modular file that a generated file would come from: `modeling_x.py` -> `modular_x.py` beside it."""
    folder, name = os.path.split(path)
    split = split_stem(name.removesuffix(".py"), settings.file_kinds)
    return os.path.join(folder, f"modular_{split[1]}.py") if split else ""


def dependencies(required: Mapping[str, Collection[str]], settings: Settings) -> dict[str, frozenset[str]]:
    """For each modular file of a run, those of the run whose generated files it needs.

    Args:
        required: modular file -> the neighbour files that it imports from.
    """
    return {
        path: frozenset(
            modular for file in files if (modular := modular_of(file, settings)) in required and modular != path
        )
        for path, files in required.items()
    }


def levels(needs: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Sort files so that each comes after those that it needs; members of cycles are left out."""
    left = {path: set(needed) & set(needs) for path, needed in needs.items()}
    ordered: list[list[str]] = []
    while ready := sorted(path for path, needed in left.items() if not needed):
        ordered.append(ready)
        left = {path: needed.difference(ready) for path, needed in left.items() if path not in ready}
    return ordered


def cycles(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """The circles of files that need each other, each from its first member in order; deterministic."""
    sortable = {path for level in levels(needs) for path in level}
    left = {path: sorted(set(needed) - sortable) for path, needed in needs.items() if path not in sortable}
    found: list[tuple[str, ...]] = []
    for start in sorted(left):
        if not any(start in circle for circle in found):
            circle = next(_walks_back(start, left), None)
            if circle:
                found.append(circle)
    return found


def _walks_back(start: str, needs: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, ...]]:
    """The ways from a file through what it needs back to itself, shortest first."""
    seen = {start}
    ways: list[tuple[str, ...]] = [(start,)]
    while ways:
        longer: list[tuple[str, ...]] = []
        for way in ways:
            for needed in needs.get(way[-1], ()):
                if needed == start:
                    yield way
                elif needed not in seen:
                    seen.add(needed)
                    longer.append((*way, needed))
        ways = longer
