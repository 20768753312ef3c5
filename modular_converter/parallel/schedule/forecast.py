"""The expected step of a model in stages: one schedule simulated, and others on the same ranks for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.pipeline.balance import cuts_of_balance
from modular_converter.parallel.schedule.actions import ActionOrder, inference_order
from modular_converter.parallel.schedule.best_balance import balance_by_cost, best_balance, even_balance
from modular_converter.parallel.schedule.orders import SCHEDULES, order_of
from modular_converter.parallel.schedule.simulate import Timeline, simulate
from modular_converter.parallel.schedule.stage_costs import ChainCosts, StageCost


@dataclass(frozen=True)
class PipelineSetting:
    """How a model is to run.

    Attributes:
        schedule: a name of ``SCHEDULES``.
        per_rank: stages of each rank.
        chunks: micro-batches of a step.
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
        """The actions of each rank. Raises ``ScheduleError`` where the schedule does not allow the sizes."""
        order = order_of(SCHEDULES[self.schedule], self.ranks, self.per_rank, self.chunks)
        return order if self.trains else inference_order(order)


@dataclass(frozen=True)
class Forecast:
    """A simulated step of a model cut into stages.

    Attributes:
        balance: layers of each stage.
        stages: the cost of each stage for one micro-batch.
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
        chosen: with the balance that was given, else the even one.
        best: the same with the best balance that was found.
        others: each other schedule on the same ranks with layers balanced by cost, or why it cannot run.
    """

    chosen: Forecast
    best: Forecast
    others: tuple[tuple[str, Forecast | str], ...]


def forecast(setting: PipelineSetting, costs: ChainCosts, balance: Sequence[int] = ()) -> Forecast:
    """Simulate a setting.

    Args:
        balance: layers of each stage; evenly if empty.

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
    """The stages with what torch keeps of their results.

    In training, the last stage's output until its backward. Without a backward all that stages send and receive until
    the step ends, the results of all micro-batches, and the batch that they are put together to.
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
    """A forecast, the best balance beside it, and the other schedules. Raises as ``forecast`` does."""
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
