"""The order in which modular files are converted, by the generated files that each needs of others; a file that has read
one which has changed since is converted again.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from graphlib import CycleError, TopologicalSorter

from modular_converter.convert.inherit.resolve import modules_of, neighbour_module
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import Conversion, ConversionError
from modular_converter.model.module import ImportedName, Module, Role
from modular_converter.settings.values import Settings, depth_of_files, modular_of, module_name, parts_below_models


def required_files(path: str, library: Library) -> frozenset[str]:
    """The neighbour files that the top level of a modular file imports from, whether they exist or not.

    None for a file that cannot be read or is not Python: its conversion reports the error.
    """
    statements = _module(path, library).statements
    imported = [name for one in statements if one.role is Role.IMPORT for name in one.imports]
    return neighbour_files(imported, [base for one in statements for base in one.bases], path, library)


def neighbour_files(
    imported: Collection[ImportedName], bases: Iterable[str], path: str, library: Library
) -> frozenset[str]:
    """The neighbour files among those that a file with these bases imports from, whether they exist or not. A package of a
    model that hands on a base stands for all files of the model.
    """
    settings, folder = library.settings, os.path.dirname(path)
    modules, owners = {name.module for name in imported}, {base.partition(".")[0] for base in bases}
    for module in {module for name in imported if name.bound in owners for module in modules_of(name)}:
        parts = parts_below_models(module, settings)
        if parts is not None and len(parts) < depth_of_files(settings):
            modules.update(f"{module}.{module_name(kind, parts[0])}" for kind in settings.file_kinds)
    neighbours = (one for one in modules if neighbour_module(one, settings))
    return frozenset(file for one in neighbours if (file := library.resolver.path(one, folder)))


def ancestor_files(path: str, library: Library) -> frozenset[str]:
    """The files in which the ancestors of a module's classes are looked for, whether they exist or not.

    A conversion reads them when a modular file removes attributes, to know which attributes exist.
    None for a file that cannot be read or is not Python: the conversion stops there, too.
    """
    seen = Observations()
    observed = library.observing(seen)
    module = _module(path, observed)
    for name in module.classes:
        deque(observed.resolver.lineage(name, module), maxlen=0)
    library.observations.files.update(seen.files)
    library.observations.packages.update(seen.packages)
    return frozenset(one for one in seen.files if os.path.isdir(os.path.dirname(one)))


def removes_attributes(path: str, library: Library) -> bool:
    """Whether a modular file may remove attributes of a parent."""
    return any("AttributeError" in one.text for one in _module(path, library).statements)


def _module(path: str, library: Library) -> Module:
    try:
        return library.module(path)
    except ConversionError:
        return Module(path, "", ())


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


def reached(starts: Iterable[str], step: Callable[[str], Iterable[str]]) -> set[str]:
    """Some files or names, and all that steps lead to from them."""
    found, waiting = {*starts}, [*starts]
    while waiting:
        new = {*step(waiting.pop())} - found
        found |= new
        waiting += new
    return found


class Schedule:
    """The files still to be converted. Each round looks only at files that the last round has touched."""

    def __init__(
        self,
        required: Mapping[str, Collection[str]],
        needs: Mapping[str, Collection[str]],
        known: Mapping[str, Conversion],
        refused: Collection[str],
        exists: Callable[[str], bool],
        concerns: Callable[[str, str], bool] | None = None,
        *,
        speculates: bool,
    ) -> None:
        """Begin with all files that are neither known nor refused.

        Args:
            required: modular file -> the neighbour files that it imports from.
            needs: modular file -> the others of the run whose generated files it needs.
            known: conversions that hold so far.
            refused: files that are not converted at all.
            exists: whether there is a file, on disk or among the texts of the run.
            concerns: whether a modular file that is not yet converted reads what has changed in a file; None for yes.
            speculates: whether a file is converted as soon as its neighbours can be read. Where they have mostly
            changed, as where most files are known, a conversion before them would be in vain.
        """
        self._required, self._needs, self._exists = required, needs, exists
        self._place = {path: number for number, path in enumerate(_in_order(needs))}
        self._heirs: defaultdict[str, list[str]] = defaultdict(list)
        self._readers: defaultdict[str, set[str]] = defaultdict(set)
        self._times: Counter[str] = Counter()
        self._speculates, self._concerns = speculates, concerns
        self._pending = needs.keys() - known.keys() - set(refused)
        self._touched = set(self._pending)
        for path, needed in needs.items():
            for one in needed:
                self._heirs[one].append(path)
        for conversion in known.values():
            self._add_reads(conversion)

    def next_round(self) -> list[str]:
        """The files to convert now, in order of dependency; none at the end.

        These are the files whose neighbours are converted or, when hardly anything is known, can at least be read.
        """
        ready = self._readable() if self._speculates else self._not_behind()
        ready = ready or self._pending.copy()  # files that wait for each other
        self._pending -= ready
        self._touched = {heir for path in ready for heir in self._heirs[path]}
        self._times.update(ready)
        return sorted(ready, key=self._place.__getitem__)

    def settle(self, batch: Iterable[Conversion], changed: Mapping[str, str], done: Mapping[str, Conversion]) -> None:
        """Register a round: the files that have read a changed file must be converted again. Files may go on changing
        each other although their imports form no cycle, so the number of times is limited.

        Args:
            changed: file -> the modular file that it comes from.
            done: all conversions so far.
        """
        for conversion in batch:
            self._add_reads(conversion)
        for file, source in changed.items():
            for path in self._readers[file]:
                if path == source or file not in _reads(done[path]) or self._times[path] > len(self._needs):
                    continue
                if path in self._pending or self._times[path] or not self._concerns or self._concerns(path, file):
                    self._pending.add(path)
                    self._touched.add(path)

    def _add_reads(self, conversion: Conversion) -> None:
        for file in _reads(conversion):
            self._readers[file].add(conversion.path)

    def _readable(self) -> set[str]:
        """The pending files that build on no other pending file, or whose neighbours can all be read."""
        return {
            path
            for path in self._touched & self._pending
            if self._pending.isdisjoint(self._needs[path]) or all(map(self._exists, self._required[path]))
        }

    def _not_behind(self) -> set[str]:
        """The pending files that build on no other pending file, directly or through others."""
        unsettled = self._pending.copy()
        for path in self._place:
            if not unsettled.isdisjoint(self._needs[path]):
                unsettled.add(path)
        return {path for path in self._pending if unsettled.isdisjoint(self._needs[path])}


def _reads(conversion: Conversion) -> Set[str]:
    """The files that a conversion imports from or has read."""
    return conversion.requires | conversion.reads.keys()


def _in_order(needs: Mapping[str, Collection[str]]) -> list[str]:
    """The files, each after the files that it needs; those on or behind a cycle come last."""
    order = [path for level in levels(needs) for path in level]
    return [*order, *sorted(needs.keys() - set(order))]
