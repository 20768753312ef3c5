"""The lines of two methods in the order in which inheritance executes them, and those that write a path above a place."""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from modular_converter.convert.inherit.hidden_effects import HiddenEffects
from modular_converter.convert.inherit.statements import Line
from modular_converter.model.bindings import covers


FARTHEST = 50
"""The most writers of one attribute that are compared, from the last one back, and the most lines that may read any
attribute.

Time stays proportional to the input.
"""


NO_METHODS = HiddenEffects({}, "")


class History:
    """The lines that write a path above a place in a list of lines."""

    def __init__(self, lines: Sequence[Line], instance: str, hidden: HiddenEffects = NO_METHODS) -> None:
        """`instance` is the name of the instance: operations on the whole instance are not followed."""
        self.lines = lines
        self.turn = {line.origin: place for place, line in enumerate(lines)}
        self.by_text = {line.original: place for place, line in enumerate(lines)}
        self._writers: dict[str, list[int]] = {}
        self._binders: dict[str, list[int]] = {}
        held_by: dict[str, frozenset[str]] = {}
        for place, line in enumerate(lines):
            held = (held_by[name] for name in line.effects.objects_changed if name in held_by) if held_by else ()
            for path in line.effects.writes.union(hidden.of(line.effects).writes, *held) - {instance}:
                self._writers.setdefault(path, []).append(place)
            held_by.update(local_objects(line, instance))
            for path in line.effects.binds:
                self._binders.setdefault(path, []).append(place)

    def place(self, line: Line) -> int | None:
        """The position of a line; for a line that is not repeated, the position of the parent's equal line."""
        return self.turn.get(line.origin, self.by_text.get(line.original))

    def binder(self, name: str, end: int) -> Line | None:
        """The last line above a place that binds a name."""
        found = self._binders.get(name, [])
        place = bisect_left(found, end)
        return self.lines[found[place - 1]] if place else None

    def binds_from(self, name: str, start: int) -> bool:
        """Whether a line at or below a place binds a name."""
        return self._binders.get(name, [-1])[-1] >= start

    def writers(self, path: str, end: int) -> list[Line]:
        """The lines that decide the value of a path above a place, the last one first."""
        found: list[Line] = []
        for place in itertools.islice(self._places(path, end), FARTHEST):
            line = self.lines[place]
            found.append(line)
            if any(covers(target, path) for target in (*line.targets, *line.deleted)):
                break
        return found

    def _places(self, path: str, end: int) -> Iterator[int]:
        """The places of the lines that write a path or an object that holds it, the last one first."""
        names = path.split(".")
        lists = [self._writers.get(".".join(names[:length]), []) for length in range(1, len(names) + 1)]
        each = [reversed(places[: bisect_left(places, end)][-FARTHEST:]) for places in lists]
        return (place for place, _ in itertools.groupby(heapq.merge(*each, reverse=True)))


def local_objects(line: Line, instance: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The local names that a line binds, each with the attributes whose objects it may stand for: `h = self.items`."""
    attributes = frozenset(path for path in line.effects.reads if path.startswith(f"{instance}."))
    return ((name, attributes) for name in line.effects.binds if "." not in name)


@dataclass(frozen=True)
class Order:
    """The lines of an override and of the parent's method, as inheritance executes them."""

    before: Sequence[Line]
    """The child's lines above its `super()` statement."""
    inherited: Sequence[Line]
    """The parent's."""
    after: Sequence[Line]
    """The child's lines behind its `super()` statement."""
    instance: str
    parameters: frozenset[str]
    """The parameters of the merged method."""
    hidden: HiddenEffects = NO_METHODS
    """The effects of the methods that the lines use."""

    @cached_property
    def written(self) -> History:
        """All lines."""
        return History([*self.before, *self.inherited, *self.after], self.instance, self.hidden)

    def gives_the_same(self, one: Line, other: Line) -> bool:
        """Whether two statements of one text read the same values, as inheritance executes them."""
        ends = self.written.turn[one.origin], self.written.turn[other.origin]
        return one.original == other.original and all(
            self.written.writers(path, ends[0]) == self.written.writers(path, ends[1]) for path in one.effects.reads
        )

    @cached_property
    def own(self) -> History:
        """The child's lines."""
        return History([*self.before, *self.after], self.instance, self.hidden)

    @cached_property
    def of_parent(self) -> frozenset[Line]:
        """The parent's lines."""
        return frozenset(self.inherited)

    @cached_property
    def bound_by_parent(self) -> frozenset[str]:
        """The paths that the parent's lines bind."""
        return frozenset[str]().union(*(line.effects.binds for line in self.inherited))

    @cached_property
    def is_too_large(self) -> bool:
        """Whether there is too much to compare: then the child's lines stay behind the parent's."""
        effects = (one.effects for one in (*self.before, *self.inherited, *self.after))
        return len(self.readers_of_all) > FARTHEST or self.hidden.are_too_many(effects)

    @cached_property
    def readers_of_all(self) -> frozenset[Line]:
        """The child's lines behind its `super()` statement that may read any attribute."""
        return frozenset(line for line in self.after if self.hidden.may_read_any(line.node, line.effects))

    def attributes(self, paths: Collection[str]) -> list[str]:
        """The attributes of the instance among some paths."""
        return sorted(path for path in paths if path.startswith(f"{self.instance}."))
