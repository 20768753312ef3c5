"""The modular files of a run to convert next, those included that have read a file which has changed since."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Set

from modular_converter.convert.build_order import levels
from modular_converter.convert.conversion import Conversion


class Schedule:
    """The files still to be converted. Each round looks only at files that the last round has touched."""

    def __init__(
        self,
        required: Mapping[str, Collection[str]],
        needs: Mapping[str, Collection[str]],
        known: Mapping[str, Conversion],
        refused: Collection[str],
        exists: Callable[[str], bool],
    ) -> None:
        """Begin with all files that are neither known nor refused.

        Args:
            required: modular file -> the neighbour files that it imports from.
            needs: modular file -> the others of the run whose generated files it needs.
            known: conversions that hold so far. If there are some, most files are known, and the neighbours of the
            others have mostly changed: a conversion before the neighbours would be in vain.
            refused: files that are not converted at all.
            exists: whether there is a file, on disk or among the texts of the run.
        """
        self._required, self._needs, self._exists = required, needs, exists
        self._place = {path: number for number, path in enumerate(_in_order(needs))}
        self._heirs: defaultdict[str, list[str]] = defaultdict(list)
        self._readers: defaultdict[str, set[str]] = defaultdict(set)
        self._times: Counter[str] = Counter()
        self._speculates = not known
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
            batch: the conversions of the round.
            changed: file -> the modular file that it comes from.
            done: all conversions so far.
        """
        for conversion in batch:
            self._add_reads(conversion)
        for file, source in changed.items():
            for path in self._readers[file]:
                if path != source and file in _reads(done[path]) and self._times[path] <= len(self._needs):
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
