"""Find the integers of the model's code that must shrink with the shards, from the sizes in the trace."""

from __future__ import annotations

from dataclasses import dataclass

from modular_converter.parallel.solve.axes import size
from modular_converter.parallel.solve.candidates import local_size
from modular_converter.parallel.solve.flow import Flow, Requirement
from modular_converter.parallel.trace.graph import Source, evaluate


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
