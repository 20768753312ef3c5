"""The units of a user's model that may not be cut, such as heads and groups, read from the axes of its own forward.

A plan says which axis of a weight is sharded. An axis of 768 entries can be 12 heads of 64, and 8 ranks must get whole
heads. A run of the model, with or without data, shows how its code takes the axis apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import torch

from modular_converter.parallel.errors import TraceError
from modular_converter.parallel.plans.patterns import matches, wildcard
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import Piece, resolve
from modular_converter.parallel.shard.shares import is_uneven
from modular_converter.parallel.solve.axes import SUM, Seq, size
from modular_converter.parallel.solve.candidates import DIVISOR
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.styles.style import Inference
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record


# These weights have whole tensors on both sides, so that a cut may lie anywhere.
WHOLE_OUTSIDE = {Inference.SUMMED_LOOKUP, Inference.GATHERED_PRODUCT, Inference.SLICED_SUMMED_PRODUCT}
ALIGNMENT = 16
"""Entries: torch's grouped products want 16 bytes, tensor cores 8 or 16 numbers."""
NARROWEST_HEAD = 4
"""Interleaved gate and up weights are pairs; a factor at least this wide is a head."""


def plan_for_ranks(plan: Plan, model: torch.nn.Module, inputs: Mapping[str, Any], ranks: int) -> Plan:
    """The plan of a small instance with the units that so many ranks need; its axes divide by ``DIVISOR`` anyway."""
    if DIVISOR % ranks == 0:
        return plan
    try:
        return with_units(plan, model, record(model, inputs), ranks)
    except TraceError:  # it runs, but cannot be followed: the proof decides
        return plan


def without_units(plan: Plan) -> Plan:
    """The plan without the numbers of units that were read off one model; expressions hold for any."""
    rules = (replace(rule, units=None, members=0) if isinstance(rule.units, int) else rule for rule in plan.rules)
    return replace(plan, rules=tuple(rules))


def with_units(plan: Plan, model: torch.nn.Module, trace: Trace, ranks: int) -> Plan:
    """The plan with ``units=`` where ranks cannot have equal parts of an axis that the model's code takes apart.

    Args:
        trace: a forward of the model, or of a part of it with the same names.

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
        style = STYLES[rule.style]
        if not style.cuts or style.inference in WHOLE_OUTSIDE or rule.units is not None:
            rules.append(rule)
            continue
        names = {path: path if path in counts else f"{path}.weight" for path in matches(rule.pattern, paths)}
        said = {path: (_units(counts.get(n), heads, ranks), members.get(n, 0)) for path, n in names.items()}
        if len(set(said.values())) == 1:
            units, shared = next(iter(said.values()))
            rules.append(replace(rule, units=units, members=shared))
        else:
            rules += [replace(rule, pattern=path, units=u, members=m) for path, (u, m) in said.items()]
    return replace(plan, rules=tuple(rules))


@dataclass(frozen=True)
class _Count:
    """The length of the outermost factor of an axis, the entries behind each of its members, and which factor it is.

    Attributes:
        axis: the same for two weights if the model's code has shown that they have the same factor; -1 for several.
    """

    number: int
    width: int
    axis: int


def unknown_cut(pieces: Mapping[str, Piece], ranks: int) -> str:
    """The first parameter with unequal shares of an axis without known units, so that a cut may lie anywhere; or ""."""
    outside = {name.rpartition(".")[0] for name, piece in pieces.items() if _is_whole_outside(piece)}
    # Tied weights share a piece: the bias of a head may have its first name outside of the layer.
    cut_anywhere = {id(piece) for name, piece in pieces.items() if name.rpartition(".")[0] in outside}
    for name, piece in pieces.items():
        if piece.units is None and id(piece) not in cut_anywhere and is_uneven([(piece.length, piece)], ranks):
            return name
    return ""


def _is_whole_outside(piece: Piece) -> bool:
    return any(STYLES[role].inference in WHOLE_OUTSIDE for role in piece.roles)


def _members(counts: Mapping[str, _Count], ranks: int) -> dict[str, int]:
    """The members of units that more ranks than units share out, by parameter: the query heads of a key/value head.

    Key/value weights have 1, so that ranks hold copies. Left out where the weights of a module do not show such a ratio,
    or where ranks would be without a member. Where a group has as many heads as there are groups, lengths do not tell
    which of both is outermost, and the factor has to be the same one.
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
    """The units of an axis; None if ranks get equal parts, or if its units are unknown.

    Widths are cut at multiples of ``ALIGNMENT`` entries, so that products with them stay fast, or work at all.

    Args:
        heads: the numbers of heads, which are not put together to multiples.
    """
    if count is None or count.number % ranks == 0:
        return None
    aligned = count.number // gcd(count.number, ALIGNMENT)
    if count.number not in heads and ranks <= aligned < count.number:
        return aligned
    return count.number


def _outermost(flow: Flow, seq: Seq, blocks: int) -> tuple[int, int] | None:
    """The outermost factor of each block of an axis, its length and its number; None where lengths are not the same."""
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
