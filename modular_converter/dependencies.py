"""Which modular file needs the generated files of which other, and in what order they can be converted."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from modular_converter.config import Settings, split_stem
from modular_converter.diagnostics import ConversionError
from modular_converter.inherit.resolve import module_path, neighbour_module
from modular_converter.source.library import Library


_IMPORT = re.compile(r"^from[ \t]+(\.{2,3}[\w.]+|[\w.]*models\.[\w.]+)[ \t]+import\b", re.MULTILINE)


def required_files(path: str, library: Library) -> frozenset[str]:
    """The neighbour files that a modular file imports from, as far as its text tells; none for an unreadable file."""
    try:
        text = library.text(path)
    except ConversionError:
        return frozenset()
    folder = os.path.dirname(path)
    modules = {module for module in _IMPORT.findall(text) if neighbour_module(module, library.settings)}
    return frozenset(found for module in modules if (found := module_path(module, folder)))


def modular_of(path: str, settings: Settings) -> str:
    """The modular file that a generated file would come from: `modeling_x.py` -> `modular_x.py` beside it."""
    folder, name = os.path.split(path)
    split = split_stem(name.removesuffix(".py"), tuple(settings.kinds.values()))
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
