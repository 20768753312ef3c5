"""The plan that shards most with a limited number of collectives: a knapsack of column/row pairs, embeddings and gathers.

For few or slow links, it gives up the shards that save least for each collective.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.cost import calls, covered
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.trace.graph import Trace


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
