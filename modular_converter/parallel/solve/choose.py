"""Choose the axes to shard: candidates without objections, largest first, that fit each other and the code's sizes.

Why other weights of a layer are gathered or whole is told with the line of the model's code, and the cure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import first_number_wild, matches, wildcard
from modular_converter.parallel.solve.axes import LEAF, PRODUCT, SUM, Atom, Seq, size
from modular_converter.parallel.solve.flow import Flow, Requirement
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles.layout import GATHERED
from modular_converter.parallel.trace.graph import Parameter, Source, Trace, evaluate


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
        against = dict(reasons.get(leaf, {}))
        if sizes[leaf] % DIVISOR:
            against[f"its length {sizes[leaf]} does not divide by {DIVISOR}"] = -1
        found.ops = against | found.ops
        found.reasons.extend(reason for reason in against if reason not in found.reasons)
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


RANKS = 2  # sizes scale alike on any number of ranks


@dataclass(frozen=True)
class Conflict:
    """A size in the code that is wrong whatever attributes shrink."""

    leaves: frozenset[int]
    reason: str
    op: int = -1


def solve_requirements(flow: Flow, chosen: set[int]) -> tuple[set[tuple[str, str]], Conflict | None]:
    """The attributes (module path, name) that must shrink so that all sizes in the code are those of a rank.

    Returns:
        The attributes, and the first conflict or None. Conflicts are numbers in the code, sizes of whole tensors, and
        attributes that other code needs whole.
    """
    shrink: set[tuple[str, str]] = set()
    # A source that does not give the whole length is the wrong integer of its call, and is ignored.
    stated = [r for r in flow.requirements if _value(flow, r.source, set(), set()) == size(r.seq)]
    for requirement in stated:
        want = local_size(flow, requirement.seq, chosen, RANKS)
        if _value(flow, requirement.source, chosen, shrink) == want:
            continue
        found = _fix(flow, requirement, chosen, shrink, want)
        if found is None:
            return shrink, _conflict(flow, requirement, chosen)
        shrink |= found
    for requirement in stated:
        if _value(flow, requirement.source, chosen, shrink) != local_size(flow, requirement.seq, chosen, RANKS):
            return shrink, _conflict(flow, requirement, chosen | {-1})
    return shrink, None


def _fix(
    flow: Flow, requirement: Requirement, chosen: set[int], shrink: set[tuple[str, str]], want: int
) -> set[tuple[str, str]] | None:
    leaves = [(leaf.owner, leaf.name) for leaf in requirement.source.leaves()]
    fresh = [leaf for leaf in dict.fromkeys(leaves) if leaf not in shrink]
    for attempt in [*({leaf} for leaf in fresh), set(fresh)]:
        if attempt and _value(flow, requirement.source, chosen, shrink | attempt) == want:
            return attempt
    return None


def _value(flow: Flow, source: Source, chosen: set[int], shrink: set[tuple[str, str]]) -> int:
    def leaf(found: Source) -> int:
        if found.kind == "attr":
            return found.value // RANKS if (found.owner, found.name) in shrink else found.value
        if found.kind == "shape":
            return local_size(flow, flow.of(found.tensor)[found.dim], chosen, RANKS)
        return found.value

    return evaluate(source, leaf)


def _conflict(flow: Flow, requirement: Requirement, chosen: set[int]) -> Conflict:
    touched = {atom.number for atom in flow.axes.leaves(requirement.seq)} & chosen
    op = flow.trace.ops[requirement.op]
    if not touched:
        touched = _behind(flow, requirement.source, chosen)
    where = op.module or "the model"
    return Conflict(frozenset(touched), f"{requirement.what} in {where} is {_say(requirement.source)}", requirement.op)


def _behind(flow: Flow, source: Source, chosen: set[int]) -> set[int]:
    """The chosen axes for which the attributes of a source shrink, or whose lengths it reads."""
    found: set[int] = set()
    if source.kind == "shape":
        found |= {atom.number for atom in flow.axes.leaves(flow.of(source.tensor)[source.dim])} & chosen
    for arg in source.args:
        found |= _behind(flow, arg, chosen)
    names = {(leaf.owner, leaf.name) for leaf in source.leaves()}
    for other in flow.requirements:
        if names & {(leaf.owner, leaf.name) for leaf in other.source.leaves()}:
            found |= {atom.number for atom in flow.axes.leaves(other.seq)} & chosen
    return found


def _say(source: Source) -> str:
    if source.kind == "attr":
        return f"{source.name} of {source.owner or 'the model'}, needed whole elsewhere"
    if source.kind == "shape":
        return "read from a whole tensor"
    if source.kind == "const":
        return f"the number {source.value}"
    return "computed from whole sizes"


@dataclass
class Choice:
    """The chosen leaves, the attributes that shrink, and the reasons against all other candidates."""

    chosen: set[int]
    attributes: set[tuple[str, str]]
    accepted: list[Candidate]
    refused: list[tuple[Candidate, str]] = field(default_factory=list)


def choose(flow: Flow, banned: dict[int, str] | None = None) -> Choice:
    """Pick candidates greedily by the parameter elements that they split.

    Args:
        flow: a followed trace.
        banned: leaf -> the reason of a later step why it cannot be sharded.
    """
    banned = banned or {}
    refused: list[tuple[Candidate, str]] = []
    accepted: list[Candidate] = []
    for candidate in candidate_axes(flow):
        forbidden = next((banned[leaf] for leaf in sorted(candidate.leaves) if leaf in banned), None)
        reason = forbidden or (candidate.reasons[0] if candidate.reasons else _clash(candidate, accepted))
        if reason:
            refused.append((candidate, reason))
        else:
            accepted.append(candidate)
    return _without_misfits(flow, accepted, refused)


def _clash(candidate: Candidate, accepted: list[Candidate]) -> str | None:
    """The reason against a second axis of one parameter, unless both are separate blocks of a fused axis; else None."""
    for other in accepted:
        for place in candidate.places:
            for taken in other.places:
                if place.parameter == taken.parameter and not _separate(place, taken):
                    return "another axis of the same parameter is sharded"
    return None


def _separate(place: Place, other: Place) -> bool:
    """Whether two places lie in different segments of the same dimension."""
    if place.dim != other.dim:
        return False
    a, b = place.path.split("."), other.path.split(".")
    for x, y in zip(a, b):
        if x != y:
            return "[" in x and "[" in y and x.split("[")[0] == y.split("[")[0]
    return False


def _without_misfits(flow: Flow, accepted: list[Candidate], refused: list[tuple[Candidate, str]]) -> Choice:
    """Drop candidates until each parameter is split completely or not at all, and each size in the code fits."""
    while True:
        chosen = {leaf for candidate in accepted for leaf in candidate.leaves}
        bad = _incomplete(flow, chosen)
        attributes: set[tuple[str, str]] = set()
        if bad is None:
            attributes, bad = solve_requirements(flow, chosen)
        if bad is None or not accepted:
            return Choice(chosen, attributes, accepted, refused)
        hit = [candidate for candidate in accepted if candidate.leaves & bad.leaves]
        if not hit:
            hit = accepted[-1:]  # the cause is unknown: give up the smallest candidate, which ends the loop
        refused.extend((candidate, bad.reason) for candidate in hit)
        for candidate in hit:
            candidate.ops.setdefault(bad.reason, bad.op)
        accepted = [candidate for candidate in accepted if candidate not in hit]


def _incomplete(flow: Flow, chosen: set[int]) -> Conflict | None:
    for parameter in flow.trace.parameters:
        for seq in flow.of(parameter.tensor):
            blocks = layout(flow, seq, chosen)
            if len({split for _, split in blocks}) > 1:
                touched = {atom.number for atom in flow.axes.leaves(seq)} & chosen
                return Conflict(frozenset(touched), f"a part of the fused {parameter.name} must stay whole")
    return None


# (Part of a reason, cure). Other reasons are in the arithmetic, and have no cure.
_ADVICE = (
    ("a size in a view", "write -1 for this size, or compute it from attributes of the module, such as its heads"),
    ("a split size", "write chunk with the number of parts, or compute the size from attributes of the module"),
    ("a size of ", "compute this size from attributes of the module, or from the tensor that it is used with"),
    ("a slice that cuts across", "view the axis as heads and their width before it is cut"),
    ("a slice ", "compute the borders of this slice from attributes of the module, or cut with chunk"),
    (
        "a norm over groups of channels",
        "nn.GroupNorm counts its groups, of which a rank has a part: write it over x.unflatten(1, (-1, channels of a group)), with "
        "mean and square mean over all but the first two axes, and as many weights as channels",
    ),
    ("a repeat count", "compute this count from attributes of the module"),
    ("a buffer: ", "make it a parameter (without requires_grad if it is not learnt): parameters can be sharded"),
    ("a view that mixes axes", "view the axis as heads and their width before it is cut or moved"),
    ("rows are looked up in it", "take the part with a slice, split or chunk instead of a list of indices"),
    ("does not divide by", "lengths of heads or blocks must divide by 4 on the small instance: give other sizes"),
    ("does not give the length of its blocks", "compute the lengths of the blocks from attributes of the module"),
)
_LOOKED_UP = "rows are looked up in it"
_ATTENTION = "MultiheadAttention"
_OF_TORCH = (
    "torch's nn.MultiheadAttention computes with the whole width; write its projections as nn.Linear layers and their "
    "heads as view(batch, length, -1, head_dim)"
)


@dataclass(frozen=True)
class Hindrance:
    """A reason why weights cannot be sharded in pairs.

    Attributes:
        weights: names, with ``*`` for numbers of layers.
        site: ``path:line``, relative if below the working directory; empty if unknown.
        advice: the code to write instead.
    """

    weights: tuple[str, ...]
    reason: str
    site: str
    advice: str

    def __str__(self) -> str:
        site = f" ({self.site})" if self.site else ""
        return f"{', '.join(self.weights)}: {self.reason}{site}; {self.advice}"


def hindrances(trace: Trace, plan: Plan) -> list[Hindrance]:
    """The curable reasons why the plan gathers matrices in numbered layers or leaves them whole."""
    flow = follow(trace)
    wanted = {number: p.name for number, p in enumerate(trace.parameters) if _is_wanted(p, plan)}
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for candidate, reason in choose(flow).refused:
        touched = [wanted[place.parameter] for place in candidate.places if place.parameter in wanted]
        for cause, site, advice in _curable(flow, candidate, reason) if touched else ():
            found.setdefault((cause, site, advice), {}).update(dict.fromkeys(map(wildcard, touched)))
    return [Hindrance(tuple(names), *key) for key, names in _without_repeats(found).items()]


def _without_repeats(
    found: dict[tuple[str, str, str], dict[str, None]],
) -> dict[tuple[str, str, str], dict[str, None]]:
    """One entry for each line of code, which hinders all layers."""
    first: dict[tuple[str, str], tuple[str, str, str]] = {}
    result: dict[tuple[str, str, str], dict[str, None]] = {}
    for key, names in found.items():
        kept = first.setdefault((key[1] or key[0], key[2]), key)
        result.setdefault(kept, {}).update(names)
    return result


def _is_wanted(parameter: Parameter, plan: Plan) -> bool:
    if len(parameter.shape) < 2 or "*" not in wildcard(parameter.name):
        return False
    names = [*parameter.names, *(name.rpartition(".")[0] for name in parameter.names)]
    layouts = {rule.layout for rule in plan.rules if matches(rule.pattern, names)}
    return not layouts or layouts == {GATHERED}


def _curable(flow: Flow, candidate: Candidate, reason: str) -> Iterator[tuple[str, str, str]]:
    """(Reason, site, advice) of each reason that other code would cure; nothing if another reason would remain."""
    reasons = dict.fromkeys((*candidate.reasons, reason))
    curable = [cause for cause in reasons if _advice(flow, candidate, cause)]
    if len(curable) < len([cause for cause in reasons if cause in candidate.ops]):
        return
    for cause in curable:
        advice = _advice(flow, candidate, cause)
        yield "attention of torch" if advice == _OF_TORCH else cause, _site(flow, candidate.ops.get(cause, -1)), advice


def _advice(flow: Flow, candidate: Candidate, reason: str) -> str:
    op = candidate.ops.get(reason, -1)
    operation = flow.trace.ops[op] if op >= 0 else None
    if operation is not None and flow.trace.module_classes.get(operation.module) == _ATTENTION:
        return _OF_TORCH
    if reason == _LOOKED_UP and (operation is None or operation.name != "index"):
        return ""
    return next((advice for part, advice in _ADVICE if part in reason), "")


def _site(flow: Flow, op: int) -> str:
    call = flow.trace.ops[op].call if op >= 0 else -1
    site = flow.trace.calls[call].site if call >= 0 else ""
    below = os.path.join(os.getcwd(), "")
    return site.removeprefix(below)
