"""The order in which modular files can be converted, by the generated files that each needs of others."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from modular_converter.settings.kinds import split_stem
from modular_converter.settings.values import Settings


def modular_of(path: str, settings: Settings) -> str:
    """The modular file that a generated file would come from: `modeling_x.py` -> `modular_x.py` beside it."""
    folder, name = os.path.split(path)
    split = split_stem(name.removesuffix(".py"), settings.file_kinds)
    return os.path.join(folder, f"modular_{split[1]}.py") if split else ""


def dependencies(required: Mapping[str, Collection[str]], settings: Settings) -> dict[str, frozenset[str]]:
    """For each modular file of a run, the others of the run whose generated files it needs.

    Args:
        required: modular file -> the neighbour files that it imports from.
        settings: they tell which files are generated.
    """
    giver = {file: modular_of(file, settings) for file in frozenset().union(*required.values())}
    return {
        path: frozenset(one for file in files if (one := giver[file]) in required and one != path)
        for path, files in required.items()
    }


def levels(needs: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Sort files so that each comes after the files that it needs.

    Members of cycles, and files that need them, are left out.
    """
    sorter = TopologicalSorter({path: [one for one in needed if one in needs] for path, needed in needs.items()})
    with contextlib.suppress(CycleError):  # the sorter still gives all files that no cycle blocks
        sorter.prepare()
    ordered: list[list[str]] = []
    while ready := sorter.get_ready():
        ordered.append(sorted(ready))
        sorter.done(*ready)
    return ordered


def cycles(needs: Mapping[str, Collection[str]]) -> list[tuple[str, ...]]:
    """The cycles of files that need each other, each from its first member on. Every file on a cycle is in a result."""
    sortable = {path for level in levels(needs) for path in level}
    left = {path: sorted(set(needed) - sortable) for path, needed in needs.items() if path not in sortable}
    found: list[tuple[str, ...]] = []
    for start in sorted(left):
        if not any(start in cycle for cycle in found) and (cycle := _cycle_from(start, left)):
            found.append(cycle)
    return found


def _cycle_from(start: str, needs: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The shortest way from a file through the files that it needs back to itself; empty if there is none."""
    seen: set[str] = set()
    ways: deque[tuple[str, ...]] = deque([(start,)])
    while ways:
        way = ways.popleft()
        for needed in needs.get(way[-1], ()):
            if needed == start:
                return way
            if needed not in seen:
                seen.add(needed)
                ways.append((*way, needed))
    return ()
