"""The share of an axis that each rank holds, as integers: for tensors, for rows in transfer and for tables.

Each packed block of an axis consists of equal units (heads, or single entries), and each rank holds neighbouring units:
50257 rows on 2 ranks are 25129 and 25128. If the number does not divide, the first ranks hold one unit more.

A plan says which axis of a weight is sharded. An axis of 768 entries can be 12 heads of 64, and each of 8 ranks must get
whole heads. A run of the model, with or without data, shows how its code factors the axis.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError, TraceError
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import Piece, Units, resolve
from modular_converter.parallel.plans.text_checks import matches, wildcard
from modular_converter.parallel.solve.axes import SUM, Seq, size
from modular_converter.parallel.solve.choose import DIVISOR
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record


def block_lengths(length: int, parts: Sequence[int]) -> list[int]:
    """The lengths of the packed blocks of an axis, from their relative lengths.

    Raises ``ApplyError`` if the axis does not divide into such parts.
    """
    if not parts:
        return [length]
    common = gcd(*parts)  # the blocks of a share have the same proportion, and may be shorter
    unit, rest = divmod(length, sum(parts) // common)
    if rest:
        raise ApplyError(f"an axis of length {length} does not divide into parts {':'.join(map(str, parts))}")
    return [unit * part // common for part in parts]


def stretches(
    length: int, parts: Sequence[int], rank: int, size: int, units: Units | None = None
) -> list[tuple[int, int, int]]:
    """A rank's slice of each block of an axis: ``(start in the whole, start in the share, length)``.

    Args:
        units: of each block; None for single entries.

    Raises ``ApplyError`` if a block does not divide into its units, has fewer units than there are ranks, or blocks of
    different lengths have no units and do not divide.
    """
    blocks = block_lengths(length, parts)
    if units is None and len(set(blocks)) > 1 and any(block % size for block in blocks):
        lengths = ", ".join(map(str, blocks))
        raise ApplyError(
            f"blocks of lengths {lengths} do not divide over {size} ranks; units= would say what goes together"
        )
    found, start, local = [], 0, 0
    for block in blocks:
        counted = units or Units(block)
        each, rest = divmod(block, counted.number * max(counted.members, 1))
        if rest:
            raise ApplyError(f"a block of length {block} is not made of {counted.number} equal units")
        first, own = counted.own(rank, size)
        found.append((start + first * each, local, own * each))
        start, local = start + block, local + own * each
    return found


def share_length(length: int, parts: Sequence[int], rank: int, size: int, units: Units | None = None) -> int:
    """The length of a rank's share of an axis. Raises as ``stretches`` does."""
    return sum(own for _, _, own in stretches(length, parts, rank, size, units))


def share_lengths(length: int, parts: Sequence[int], size: int, units: Units | None = None) -> tuple[int, ...]:
    """The lengths of the shares of all ranks. Raises as ``stretches`` does."""
    return tuple(share_length(length, parts, rank, size, units) for rank in range(size))


def is_uneven(pieces: Iterable[Piece], size: int) -> bool:
    """Whether some ranks hold more of an axis than others."""
    cut = [piece for piece in pieces if piece.dim >= 0]
    return any(len(set(share_lengths(piece.length, piece.parts, size, piece.units))) > 1 for piece in cut)


def share_shape(shape: tuple[int, ...], piece: Piece | None, rank: int, size: int) -> tuple[int, ...]:
    """The shape of a rank's share; ``shape`` itself for a tensor that stays whole."""
    if piece is None or piece.dim < 0:
        return shape
    dim = piece.dim
    return (*shape[:dim], share_length(shape[dim], piece.parts, rank, size, piece.units), *shape[dim + 1 :])


def largest_share(shape: tuple[int, ...], piece: Piece | None, size: int) -> tuple[int, ...]:
    """The shape of the largest share of all ranks."""
    if piece is None or piece.dim < 0:
        return shape
    return max((share_shape(shape, piece, rank, size) for rank in range(size)), key=lambda own: own[piece.dim])


ALIGNMENT = 16
"""In entries. torch's grouped products need multiples of 16 bytes, tensor cores of 8 or 16 entries."""
NARROWEST_HEAD = 4
"""A factor at least this wide is a head; interleaved gate and up weights have a factor of 2."""


def plan_for_ranks(plan: Plan, model: torch.nn.Module, inputs: Mapping[str, Any], ranks: int) -> Plan:
    """The plan with the units that ``ranks`` need on a small instance, whose axes all divide by ``DIVISOR``."""
    if DIVISOR % ranks == 0:
        return plan
    try:
        return with_units(plan, model, record(model, inputs), ranks)
    except TraceError:  # the forward fails under recording: the proof decides
        return plan


def without_units(plan: Plan) -> Plan:
    """The plan without the numbers of units, which hold for one model; expressions hold for any model and stay."""
    rules = (replace(rule, units=None, members=0) if isinstance(rule.units, int) else rule for rule in plan.rules)
    return replace(plan, rules=tuple(rules))


def with_units(plan: Plan, model: torch.nn.Module, trace: Trace, ranks: int) -> Plan:
    """The plan with ``units=`` where the ranks cannot get equal shares of an axis that the model's code factors.

    Args:
        trace: a forward of the model, or of a part of it with the same parameter names.

    Raises ``ApplyError`` if a rule does not fit the model.
    """
    flow = follow(trace)
    own = {(name, p.shape): flow.of(p.tensor) for p in trace.parameters for name in p.names}
    known = {(wildcard(name), shape): seqs for (name, shape), seqs in own.items()} | own
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}
    counts: dict[str, _Count] = {}
    for name, piece in resolve(plan, model).pieces.items():
        seqs = known.get((name, shapes[name])) or known.get((wildcard(name), shapes[name]))
        blocks = len(piece.parts) or 1
        found = _outermost(flow, seqs[piece.dim], blocks) if seqs is not None and piece.dim >= 0 else None
        if found is not None:
            number, axis = found
            counts[name] = _Count(number, piece.length // (number * blocks), axis)
    heads = {count.number for count in counts.values() if count.width >= NARROWEST_HEAD}
    members = _members(counts, ranks)
    paths = [*dict(model.named_modules()), *shapes]
    rules: list[PlanRule] = []
    for rule in plan.rules:
        if not rule.layout.cuts or rule.layout.whole_outside or rule.units is not None:
            rules.append(rule)
            continue
        names = {path: path if path in counts else f"{path}.weight" for path in matches(rule.pattern, paths)}
        shared_out = {path: (_units(counts.get(n), heads, ranks), members.get(n, 0)) for path, n in names.items()}
        if len(set(shared_out.values())) == 1:
            units, shared = next(iter(shared_out.values()))
            rules.append(replace(rule, units=units, members=shared))
        else:
            rules += [replace(rule, pattern=path, units=u, members=m) for path, (u, m) in shared_out.items()]
    return replace(plan, rules=tuple(rules))


@dataclass(frozen=True)
class _Count:
    """The outermost factor of an axis.

    Attributes:
        number: its length.
        width: entries of the axis for each member of the factor.
        axis: identity of the factor, the same for two weights if the model's code unifies them; -1 for several factors.
    """

    number: int
    width: int
    axis: int


def unknown_cut(pieces: Mapping[str, Piece], ranks: int) -> str:
    """The first parameter with unequal shares of an axis whose units are unknown but matter; ``""`` if there is none."""
    outside = {n.rpartition(".")[0] for n, piece in pieces.items() if any(role.whole_outside for role in piece.roles)}
    # By piece, which tied weights share: the bias of a head may have its first name outside of the head.
    cut_anywhere = {id(piece) for name, piece in pieces.items() if name.rpartition(".")[0] in outside}
    for name, piece in pieces.items():
        if piece.units is None and id(piece) not in cut_anywhere and is_uneven([piece], ranks):
            return name
    return ""


def _members(counts: Mapping[str, _Count], ranks: int) -> dict[str, int]:
    """Parameter -> members of each unit, for axes with fewer units than ranks: the query heads of a key/value head.

    Key/value weights have 1 member, so that ranks hold copies. A parameter is left out if the weights of its module show
    no such ratio, or if a rank would get no member. If each group has as many heads as there are groups, the lengths do
    not show which factor is the outer one; then all weights must have the same factor.
    """
    modules: dict[tuple[str, int], dict[str, _Count]] = {}
    for name, count in counts.items():
        if count.number < ranks:
            owner = name.rpartition(".")[0]
            around = owner.rpartition(".")[0] if name.endswith((".weight", ".bias")) else owner
            modules.setdefault((around, count.number), {})[name] = count
    found: dict[str, int] = {}
    for (_, number), members in modules.items():
        widths = {name: count.width for name, count in members.items()}
        known = sorted(set(widths.values()))
        most = known[-1] // known[-2] if len(known) > 1 else 0
        if known[-1:] != [known[-2] * most] if most else True:
            continue
        one_axis = len({count.axis for count in members.values()}) == 1 and members[next(iter(members))].axis >= 0
        if known[:-2] not in ([], [most]) or most == number and not one_axis or -(-ranks // number) > most:
            continue
        found |= {name: 1 if width == known[-2] else most for name, width in widths.items()}
    return found


def _units(count: _Count | None, heads: Collection[int], ranks: int) -> int | None:
    """The number of units of an axis; None if ranks get equal shares, or if the units are unknown.

    Widths are cut at multiples of ``ALIGNMENT`` entries: products with other widths are slow, or not supported.

    Args:
        heads: the numbers of heads, which are not merged to multiples.
    """
    if count is None or count.number % ranks == 0:
        return None
    aligned = count.number // gcd(count.number, ALIGNMENT)
    if count.number not in heads and ranks <= aligned < count.number:
        return aligned
    return count.number


def _outermost(flow: Flow, seq: Seq, blocks: int) -> tuple[int, int] | None:
    """Length and identity of the outermost factor of each block of an axis; None if the lengths differ.

    The identity is -1 if the blocks have different factors.
    """
    flat = flow.axes.flat(seq)
    if not flat:
        return None
    head, rest = flat[0], flat[1:]
    if head.kind == SUM:
        if blocks % len(head.parts):
            return None
        each = {_outermost(flow, (*part, *rest), blocks // len(head.parts)) for part in head.parts}
        found = {one for one in each if one is not None}
        if found != each or len({length for length, _ in found}) != 1:
            return None
        return found.pop() if len(found) == 1 else (found.pop()[0], -1)
    if blocks == 1:
        return head.size, head.number
    return _outermost(flow, rest, blocks // head.size) if blocks % head.size == 0 and size(rest) > 1 else None
