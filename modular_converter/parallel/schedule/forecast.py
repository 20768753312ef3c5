"""The predicted step of a model in stages, with one schedule and others on the same ranks, and the balance of its layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.pipeline.chain import balanced, cuts_of_balance, spans
from modular_converter.parallel.schedule.orders import SCHEDULES, ActionOrder, Work, inference_order, order_of
from modular_converter.parallel.schedule.simulate import Timeline, simulate, step_time
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


@dataclass(frozen=True)
class PipelineSetting:
    """The setting of a pipeline.

    Attributes:
        schedule: a name in ``SCHEDULES``.
        ranks: the number of ranks.
        per_rank: the number of stages of each rank.
        chunks: the number of micro-batches of a step.
        trains: whether there are backward passes.
        overlaps: whether a rank computes while it sends.
    """

    schedule: str
    ranks: int
    per_rank: int
    chunks: int
    trains: bool = True
    overlaps: bool = True

    @property
    def stages(self) -> int:
        return self.ranks * self.per_rank

    def order(self) -> ActionOrder:
        """The actions of each rank. Raises ``ScheduleError`` if the schedule does not allow the sizes."""
        order = order_of(SCHEDULES[self.schedule], self.ranks, self.per_rank, self.chunks)
        return order if self.trains else inference_order(order)


@dataclass(frozen=True)
class Forecast:
    """A simulated step of a model cut into stages.

    Attributes:
        balance: the number of layers of each stage.
        stages: the cost of each stage for one micro-batch.
        transfer: seconds of a transfer between two ranks.
    """

    setting: PipelineSetting
    balance: tuple[int, ...]
    stages: tuple[StageCost, ...]
    transfer: float
    timeline: Timeline


@dataclass(frozen=True)
class ScheduleComparison:
    """A forecast with its alternatives.

    Attributes:
        chosen: the forecast with the given balance, or with the even balance.
        best: the same setting with the best balance that was found.
        others: (name of a schedule, its forecast on the same ranks with layers balanced by cost, or why it cannot run).
    """

    chosen: Forecast
    best: Forecast
    others: tuple[tuple[str, Forecast | str], ...]


def forecast(setting: PipelineSetting, costs: ChainCosts, balance: Sequence[int] = ()) -> Forecast:
    """Simulate a setting.

    Args:
        balance: the number of layers of each stage; even if empty.

    Raises ``ScheduleError`` for sizes that the schedule does not allow, and for a balance that does not fit the layers.
    """
    order = setting.order()
    if balance:
        cuts_of_balance(balance, len(costs.layers), setting.stages)
    cut = tuple(balance) or even_balance(len(costs.layers), setting.stages)
    stages = costs.stages(cut)
    if order.stage_ranks[0] == order.stage_ranks[-1]:
        stages = (*stages[:-1], replace(stages[-1], state=stages[-1].state - costs.shared))
    stages = _with_kept_outputs(stages, order, setting, costs)
    return Forecast(setting, cut, stages, costs.transfer, simulate(order, stages, costs.transfer, setting.overlaps))


def _with_kept_outputs(
    stages: tuple[StageCost, ...], order: ActionOrder, setting: PipelineSetting, costs: ChainCosts
) -> tuple[StageCost, ...]:
    """The stages, with the bytes of the results that torch keeps.

    In training, torch keeps the last stage's output until its backward. Without backward passes, it keeps until the end of
    the step all tensors that stages send and receive, the results of all micro-batches, and their concatenation.
    """
    *others, last = stages
    if setting.trains:
        return (*others, replace(last, activations=last.activations + costs.result))
    owners = order.stage_ranks
    kept = [float(costs.output)] * (len(stages) - 1) + [2 * costs.result]
    for number in range(1, len(stages)):
        kept[number] += costs.output * (owners[number - 1] != owners[number])
    return tuple(replace(one, state=one.state + setting.chunks * more) for one, more in zip(stages, kept))


def compare_schedules(setting: PipelineSetting, costs: ChainCosts, balance: Sequence[int] = ()) -> ScheduleComparison:
    """A forecast, the same with the best balance, and the other schedules. Raises as ``forecast`` does."""
    chosen = forecast(setting, costs, balance)
    best = forecast(setting, costs, best_balance(chosen.timeline.order, costs, setting.overlaps))
    others = []
    for schedule in SCHEDULES.values():
        if schedule.name != setting.schedule:
            other = replace(setting, schedule=schedule.name, per_rank=schedule.usual)
            others.append((schedule.name, _forecast_or_reason(other, costs)))
    return ScheduleComparison(chosen, best, tuple(others))


def _forecast_or_reason(setting: PipelineSetting, costs: ChainCosts) -> Forecast | str:
    try:
        return forecast(setting, costs, balance_by_cost(costs, setting.stages, setting.trains))
    except ScheduleError as error:
        return str(error)
