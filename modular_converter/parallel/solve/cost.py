"""The cost of a plan: bytes on a rank, and collectives of a forward; and the plan that shards most with few collectives.

The latter is a knapsack of column/row pairs, embeddings and gathers. For few or slow links, it gives up the shards that
save least for each collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import matches
from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.flow import Flow, uses
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles.layout import Side
from modular_converter.parallel.trace.graph import Parameter, Trace


if TYPE_CHECKING:
    from modular_converter.parallel.plans.resolve import Piece


@dataclass(frozen=True)
class Cost:
    """Bytes (float32) of all parameters, of one rank's, of all and of sharded layer weights; collectives of a forward."""

    whole: int
    rank: int
    layer_whole: int
    layer_sharded: int
    collectives: int

    @property
    def share(self) -> float:
        """The sharded fraction of the bytes of attention and feed-forward matrices, 0 to 1."""
        return self.layer_sharded / self.layer_whole if self.layer_whole else 0.0

    @property
    def sharded(self) -> float:
        """The sharded fraction of all bytes on two ranks, 0 to 1."""
        return 2 * (self.whole - self.rank) / self.whole if self.whole else 0.0


def cost(trace: Trace, plan: Plan, pieces: dict[str, Piece], ranks: int) -> Cost:
    """The cost of a plan on a traced model. Parameters that the forward does not use do not count as layer weights."""
    used = {number for op in trace.ops for number in op.inputs()}
    whole = rank = layers = sharded = 0
    for parameter in trace.parameters:
        size = 4 * parameter.size
        piece = next((pieces[name] for name in parameter.names if name in pieces), None)
        split = piece is not None and piece.dim >= 0
        whole += size
        rank += size // ranks if split else size
        if _is_layer_weight(parameter, used):
            layers += size
            sharded += size if split else 0
    return Cost(whole, rank, layers, sharded, calls(follow(trace), plan))


def _is_layer_weight(parameter: Parameter, used: set[int]) -> bool:
    """A matrix of attention or feed-forward: in a numbered layer, used, and no kernel over positions."""
    in_a_layer = any(word.isdigit() for word in parameter.name.split("."))
    over_positions = "conv" in parameter.owner_class.lower() and any(length > 1 for length in parameter.shape[2:])
    return len(parameter.shape) > 1 and in_a_layer and parameter.tensor in used and not over_positions


def covered(trace: Trace, plan: Plan) -> set[str]:
    """First names of the parameters that a rule of the plan splits."""
    found = set()
    for rule in plan.rules:
        if rule.layout.cuts:
            found |= {p.name for p in trace.parameters if _matched(rule, p)}
    return found


def calls(flow: Flow, plan: Plan) -> int:
    """Collectives of one forward."""
    return sum(collectives(flow, plan).values())


def collectives(flow: Flow, plan: Plan) -> dict[PlanRule, int]:
    """The number of collectives of each rule in one forward.

    Each use of a weight is one collective, or each call of a module. Weights in a module that acts for them have none.
    """
    acting = [rule.pattern for rule in plan.rules if rule.layout.acts_for_weights]
    return {rule: _collectives(flow, rule, acting) if rule.layout.leaves else 0 for rule in plan.rules}


def _collectives(flow: Flow, rule: PlanRule, acting: list[str]) -> int:
    if rule.layout.of_module:
        return sum(len(matches(rule.pattern, [call.path])) for call in flow.trace.modules)
    found = 0
    for parameter in flow.trace.parameters:
        inside = any(matches(pattern, [parameter.name.rpartition(".")[0]]) for pattern in acting)
        if not inside and _matched(rule, parameter) and not _is_bias(rule, parameter):
            found += sum(1 for _ in uses(flow, parameter))
    return found


def _matched(rule: PlanRule, parameter: Parameter) -> bool:
    return any(
        matches(pattern, parameter.names)
        for pattern in (
            rule.pattern,
            f"{rule.pattern}.weight",
            *([f"{rule.pattern}.bias"] * (rule.layout.cut is Side.OUTPUT)),
        )
    )


def _is_bias(rule: PlanRule, parameter: Parameter) -> bool:
    return not matches(rule.pattern, parameter.names) and not matches(f"{rule.pattern}.weight", parameter.names)


def static_findings(trace: Trace, plan: Plan, pieces: dict[str, Piece], ranks: int) -> list[str]:
    """Faults that need no run: too short blocks, and large weights without a rule or a reason to stay whole."""
    whole = [pattern for pattern, _ in plan.whole]
    found = []
    largest = max((p.size for p in trace.parameters), default=0)
    for parameter in trace.parameters:
        piece = pieces.get(parameter.name)
        if piece is None:
            quiet = any(matches(pattern, parameter.names) for pattern in whole)
            if not quiet and 4 * parameter.size >= largest:
                found.append(f"{parameter.name}: large, without a rule, and not listed as whole")
        elif piece.dim >= 0:
            blocks = sum(piece.parts) or 1
            length = parameter.shape[piece.dim]
            if length % blocks or length // blocks < ranks:
                found.append(f"{parameter.name}: {length} in {blocks} parts is too short for {ranks} ranks")
    return found


@dataclass(frozen=True)
class Unit:
    """Parameters that are sharded together or not at all.

    Attributes:
        elements: the number of parameter elements that it splits.
        collectives: the number of its collectives in one forward.
        leaves: its axes, for a pair; else ``name`` is its parameter.
    """

    elements: int
    collectives: int
    leaves: frozenset[int] = frozenset()
    name: str = ""


def plan_within(trace: Trace, collectives: int) -> Plan:
    """The plan that splits the most parameter elements with at most ``collectives`` in a forward."""
    flow = follow(trace)
    found = units(flow)
    taken = set(fill([(unit.elements, unit.collectives) for unit in found], collectives))
    left = [unit for number, unit in enumerate(found) if number not in taken]
    without = frozenset(leaf for unit in left for leaf in unit.leaves)
    kept = {found[number].name for number in taken}
    apart = frozenset(parameter.name for parameter in flow.trace.parameters if parameter.name not in kept)
    return plan_of(flow, Aim(without=without, apart=apart))


def units(flow: Flow) -> list[Unit]:
    """The shards of the full plan as units, with their elements and collectives."""
    accepted = choose(flow).accepted
    everything = frozenset(leaf for candidate in accepted for leaf in candidate.leaves)
    alone = frozenset(parameter.name for parameter in flow.trace.parameters)
    paired = covered(flow.trace, plan_of(flow, Aim(apart=alone)))
    rest = covered(flow.trace, plan_of(flow, Aim())) - paired
    found = []
    for candidate in accepted:
        plan = plan_of(flow, Aim(without=everything - candidate.leaves, apart=alone))
        found.append(Unit(_elements(flow, plan), calls(flow, plan), leaves=frozenset(candidate.leaves)))
    for name in sorted(rest):
        plan = plan_of(flow, Aim(without=everything, apart=alone - {name}))
        found.append(Unit(_elements(flow, plan), calls(flow, plan), name=name))
    return [unit for unit in found if unit.elements]


def _elements(flow: Flow, plan: Plan) -> int:
    names = covered(flow.trace, plan)
    return sum(parameter.size for parameter in flow.trace.parameters if parameter.name in names)


def fill(items: Sequence[tuple[int, int]], limit: int) -> list[int]:
    """The knapsack: the indices of the most valuable (value, weight) items whose weights add up to ``limit`` at most."""
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())] * (max(limit, 0) + 1)
    for number, (value, weight) in enumerate(items):
        for room in range(limit, weight - 1, -1):
            have, chosen = best[room - weight]
            if have + value > best[room][0]:
                best[room] = (have + value, (*chosen, number))
    return list(best[-1][1])
