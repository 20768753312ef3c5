"""The number of layers of each stage: even, or such that the simulated step of a schedule is short."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.pipeline.balance import balanced, spans
from modular_converter.parallel.schedule.actions import ActionOrder, Work
from modular_converter.parallel.schedule.simulate import step_time
from modular_converter.parallel.schedule.stage_costs import ChainCosts, StageCost


MOST_ACTIONS = 150_000
"""The most simulated actions in one search, which take about a second."""


def even_balance(layers: int, stages: int) -> tuple[int, ...]:
    """The number of layers of each stage, as equal as possible; the first stages may have one more.

    Raises ``ScheduleError`` for fewer layers than stages.
    """
    if stages > layers:
        raise ScheduleError(f"{layers} layers do not make {stages} stages; give at most {layers} stages in all")
    return tuple(layers // stages + (stage < layers % stages) for stage in range(stages))


def balance_by_cost(costs: ChainCosts, stages: int, trains: bool = True) -> tuple[int, ...]:
    """The number of layers of each stage for which the longest stage, with parts outside of the layers, is shortest."""
    even_balance(len(costs.layers), stages)

    def price(cost: StageCost) -> float:
        return cost.compute if trains else cost.forward

    whole = sum(map(price, (*costs.layers, costs.before, costs.after))) or 1.0
    before, after, *layers = (round(price(c) / whole * 10**9) for c in (costs.before, costs.after, *costs.layers))
    cuts = balanced(layers, stages, before, after)
    return tuple(len(span) for span in spans(cuts, len(layers)))


def best_balance(order: ActionOrder, costs: ChainCosts, overlaps: bool = True) -> tuple[int, ...]:
    """A balance with a short simulated step, found by moving single layers between neighbouring stages.

    The search starts from the better of the even balance and ``balance_by_cost``, and ends at a balance that no move
    improves, or after ``MOST_ACTIONS``.
    """
    trains = any(action.work is not Work.FORWARD for actions in order.actions for action in actions)
    length = sum(map(len, order.actions))
    left = max(MOST_ACTIONS // max(length, 1), 2)
    known: dict[tuple[int, ...], float] = {}

    def step(balance: tuple[int, ...]) -> float:
        if balance not in known:
            known[balance] = step_time(order, costs.stages(balance), costs.transfer, overlaps)
        return known[balance]

    starts = [balance_by_cost(costs, order.stages, trains), even_balance(len(costs.layers), order.stages)]
    best = min(starts, key=step)
    while True:
        moves = (move for move in _moves(best) if len(known) < left or move in known)
        better = min(moves, key=step, default=best)
        if step(better) >= step(best) * (1 - 1e-9):
            return best
        best = better


def _moves(balance: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The balances with one layer moved to a neighbouring stage."""
    for first in range(len(balance) - 1):
        for giver, taker in ((first, first + 1), (first + 1, first)):
            if balance[giver] > 1:
                moved = list(balance)
                moved[giver] -= 1
                moved[taker] += 1
                yield tuple(moved)
