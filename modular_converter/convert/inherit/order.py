"""The order of the members of a class: attributes before methods, but each member behind those that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modular_converter.model.class_blocks import Member


def in_legal_order(preferred: Sequence[Member], merged: Sequence[Member], own: Sequence[Member]) -> list[Member]:
    """The members in the preferred order, except that each comes after the members that it depends on.

    Args:
        preferred: the members in the wanted order.
        merged: the members in the parent's order, with the child's new ones behind them.
        own: those of the child, in its order.
    """
    names = frozenset[str]().union(*(member.binds for member in preferred))
    of_child = set(own)
    before: dict[Member, set[Member]] = {}
    for later, earlier in _pairs(own, names):
        before.setdefault(later, set()).add(earlier)
    for later, earlier in _pairs(merged, names):
        if not (later in of_child and earlier in of_child):
            before.setdefault(later, set()).add(earlier)
    if not before:
        return list(preferred)
    ordered: list[Member] = []
    done: set[Member] = set()
    todo = list(preferred)
    while todo:
        # In a circle the preferred order counts.
        position = next((place for place, one in enumerate(todo) if before.get(one, set()) <= done), 0)
        ordered.append(todo.pop(position))
        done.add(ordered[-1])
    return ordered


def _pairs(members: Sequence[Member], names: frozenset[str]) -> Iterator[tuple[Member, Member]]:
    """The pairs of members that must stay in their order because of one of the names, the later one first."""
    readers: dict[str, list[int]] = {}
    touchers: dict[str, list[int]] = {}
    for position, later in enumerate(members):
        reads, touches = later.reads & names, later.touches & names
        earlier = {place for name in reads | touches for place in touchers.get(name, ())}
        earlier.update(place for name in touches for place in readers.get(name, ()))
        yield from ((later, members[place]) for place in sorted(earlier))
        for name in reads:
            readers.setdefault(name, []).append(position)
        for name in touches:
            touchers.setdefault(name, []).append(position)
