"""Choose the axes to shard: candidates without objections, largest first, that fit each other and the code's sizes."""

from __future__ import annotations

from dataclasses import dataclass, field

from modular_converter.parallel.solve.candidates import Candidate, Place, candidate_axes, layout
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.requirements import Conflict, solve_requirements


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
        said = next((banned[leaf] for leaf in sorted(candidate.leaves) if leaf in banned), None)
        reason = said or (candidate.reasons[0] if candidate.reasons else _clash(candidate, accepted))
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
