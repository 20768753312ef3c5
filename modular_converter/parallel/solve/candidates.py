"""Candidate axes of a followed trace: leaves that can be sharded together, and reasons against the other leaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from modular_converter.parallel.plans.patterns import first_number_wild
from modular_converter.parallel.solve.axes import LEAF, PRODUCT, SUM, Atom, Seq, size
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.trace.graph import Parameter


DIVISOR = 4


@dataclass(frozen=True)
class Place:
    """One occurrence of a leaf in a parameter."""

    parameter: int
    dim: int
    path: str


@dataclass
class Candidate:
    """Leaves that must be sharded together, or not at all.

    Attributes:
        leaves: numbers of the leaves.
        places: their occurrences in parameters.
        reasons: why they cannot be sharded; empty if they can.
        ops: reason -> number of the operation that causes it, or -1.
        elements: the number of parameter elements that they would split.
    """

    leaves: set[int]
    places: list[Place] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    elements: int = 0
    ops: dict[str, int] = field(default_factory=dict)


class Groups:
    """Union-find over leaf numbers."""

    def __init__(self) -> None:
        self.parent: dict[int, int] = {}

    def find(self, item: int) -> int:
        root = item
        while self.parent.setdefault(root, root) != root:
            root = self.parent[root]
        while self.parent[item] != root:
            self.parent[item], item = root, self.parent[item]
        return root

    def join(self, left: int, right: int) -> None:
        a, b = self.find(left), self.find(right)
        self.parent[max(a, b)] = min(a, b)


def leaf_reasons(flow: Flow) -> dict[int, dict[str, int]]:
    """Leaf number -> the reasons why it must stay whole, in order, each with the number of its operation."""
    reasons: dict[int, dict[str, int]] = {}

    def say(seq: Seq, reason: str, op: int) -> None:
        for atom in flow.axes.leaves(seq):
            reasons.setdefault(atom.number, {}).setdefault(reason, op)

    for mark in flow.axes.marks:
        say(mark.seq, mark.reason, mark.op)
    for contraction in flow.contractions:
        if not contraction.parameters:
            say(contraction.seq, "a product of two activations sums over it", contraction.op)
    for lookup in flow.lookups:
        say(lookup.seq, "rows are looked up in it", lookup.op)
    return reasons


def places_of(flow: Flow, parameter: Parameter, number: int) -> list[tuple[Atom, Place]]:
    """All leaves of a parameter with their places, whose paths distinguish the segments of a sum."""
    found: list[tuple[Atom, Place]] = []

    def walk(seq: Seq, dim: int, path: str) -> None:
        for position, atom in enumerate(flow.axes.flat(seq)):
            here = f"{path}.{position}"
            if atom.kind == SUM:
                for segment, part in enumerate(atom.parts):
                    walk(part, dim, f"{here}[{segment}]")
            else:
                found.append((atom, Place(number, dim, here)))

    for dim, seq in enumerate(flow.of(parameter.tensor)):
        walk(seq, dim, str(dim))
    return found


def candidate_axes(flow: Flow) -> list[Candidate]:
    """All groups of leaves in parameters; groups that split the most elements come first.

    Leaves belong together if they are segments of one fused axis, or have the same place in similar layers.
    """
    groups = Groups()
    places: dict[int, list[Place]] = {}
    by_pattern: dict[tuple[str, int, str], int] = {}
    sizes: dict[int, int] = {}
    for number, parameter in enumerate(flow.trace.parameters):
        pattern = first_number_wild(parameter.name)
        for atom, place in places_of(flow, parameter, number):
            sizes[atom.number] = atom.size
            places.setdefault(atom.number, []).append(place)
            key = (pattern, place.dim, place.path)
            groups.join(by_pattern.setdefault(key, atom.number), atom.number)
    apart = _clashing(groups, places)
    alone = Groups()
    for leaf in sorted(places):
        alone.join(leaf, leaf if groups.find(leaf) in apart else groups.find(leaf))
    return _collect(flow, alone, places, sizes)


def _clashing(groups: Groups, places: dict[int, list[Place]]) -> set[int]:
    """Groups with two dimensions of one parameter: consecutive members of a sequence, which are no similar layers."""
    dims: dict[tuple[int, int], set[int]] = {}
    for leaf, found in places.items():
        for place in found:
            dims.setdefault((groups.find(leaf), place.parameter), set()).add(place.dim)
    return {group for (group, _), several in dims.items() if len(several) > 1}


def _collect(flow: Flow, groups: Groups, places: dict[int, list[Place]], sizes: dict[int, int]) -> list[Candidate]:
    reasons = leaf_reasons(flow)
    result: dict[int, Candidate] = {}
    for leaf in sorted(places):
        found = result.setdefault(groups.find(leaf), Candidate(set()))
        found.leaves.add(leaf)
        found.places.extend(places[leaf])
        said = dict(reasons.get(leaf, {}))
        if sizes[leaf] % DIVISOR:
            said[f"its length {sizes[leaf]} does not divide by {DIVISOR}"] = -1
        found.ops = said | found.ops
        found.reasons.extend(reason for reason in said if reason not in found.reasons)
    contracted = {atom.number for c in flow.contractions if c.parameters for atom in flow.axes.leaves(c.seq)}
    for found in result.values():
        if not found.leaves & contracted:
            found.reasons.append("no weight sums over it")
        touched = {place.parameter for place in found.places}
        found.elements = sum(flow.trace.parameters[number].size for number in touched)
    return sorted(result.values(), key=lambda c: (-c.elements, min(c.leaves)))


def layout(flow: Flow, seq: Seq, chosen: set[int]) -> list[tuple[int, bool]]:
    """The blocks of an axis in order: (length, whether the block is split over the ranks)."""
    flat = flow.axes.flat(seq)
    if not any(atom.number in chosen for atom in flow.axes.leaves(flat)):
        return [(size(flat), False)]
    head, rest = flat[0], flat[1:]
    if head.kind == LEAF and head.number in chosen:
        return [(size(flat), True)]
    if head.kind == SUM:
        return [block for part in head.parts for block in layout(flow, tuple(part) + rest, chosen)]
    assert head.kind != PRODUCT
    return layout(flow, rest, chosen) * head.size


def local_size(flow: Flow, seq: Seq, chosen: set[int], ranks: int) -> int:
    """The length of an axis on one rank."""
    total = 1
    for atom in flow.axes.flat(seq):
        if atom.kind == SUM:
            total *= sum(local_size(flow, part, chosen, ranks) for part in atom.parts)
        else:
            total *= atom.size // ranks if atom.number in chosen else atom.size
    return total
