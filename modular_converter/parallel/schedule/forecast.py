"""The predicted step of a model in stages: start, end and bytes of each action, other schedules, and the balance of layers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.pipeline.chain import balanced, cuts_of_balance, spans
from modular_converter.parallel.schedule.orders import SCHEDULES, Action, ActionOrder, Work, inference_order, order_of
from modular_converter.parallel.schedule.stage_costs import ChainCosts, StageCost


class Timed(NamedTuple):
    """An action with its start and end in seconds, without the send after it."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class RankUse:
    """The use of a rank in a step.

    Attributes:
        busy: seconds of compute.
        bubble: the idle part of the step, 0 to 1.
        held: the most micro-batches whose activations are on the rank at once; each stage counts its own.
        state: bytes of weights, gradients and optimizer state.
        peak: the most bytes at once: state and activations.
    """

    busy: float
    bubble: float
    held: int
    state: float
    peak: float


@dataclass(frozen=True)
class Timeline:
    """A simulated step.

    Attributes:
        step: seconds from the first start to the last end, without the optimizer.
        ranks: the actions of each rank, in order.
        uses: the use of each rank.
    """

    order: ActionOrder
    step: float
    ranks: tuple[tuple[Timed, ...], ...]
    uses: tuple[RankUse, ...]

    @property
    def bubble(self) -> float:
        """The mean idle part of the step over all ranks, 0 to 1."""
        return sum(use.bubble for use in self.uses) / len(self.uses)

    @property
    def speedup(self) -> float:
        """The time of the same compute on one device, as a multiple of the step; the device's memory does not matter."""
        return sum(use.busy for use in self.uses) / self.step if self.step else float(self.order.ranks)


def simulate(order: ActionOrder, costs: Sequence[StageCost], transfer: float = 0.0, overlaps: bool = True) -> Timeline:
    """Simulate an order.

    Args:
        costs: of each stage, for one micro-batch.
        transfer: seconds between two ranks for one micro-batch, or for its gradient. Transfers in the same direction
            between two ranks follow each other.
        overlaps: whether a rank computes while it sends; else it waits for the end of its transfer.

    Raises ``ScheduleError`` for an order in which ranks wait for each other; the message names the waiting actions.
    """
    done = _finished(order, costs, transfer, overlaps)
    step = _last_end(done)
    uses = tuple(_use(order, rank, timed, costs, step) for rank, timed in enumerate(done))
    return Timeline(order, step, tuple(map(tuple, done)), uses)


def step_time(order: ActionOrder, costs: Sequence[StageCost], transfer: float = 0.0, overlaps: bool = True) -> float:
    """Only the seconds of a step, in half of the time of ``simulate``, with the same arguments."""
    return _last_end(_finished(order, costs, transfer, overlaps))


def _last_end(done: Iterable[Sequence[Timed]]) -> float:
    return max((timed[-1].end for timed in done if timed), default=0.0)


def _finished(order: ActionOrder, costs: Sequence[StageCost], transfer: float, overlaps: bool) -> list[list[Timed]]:
    """The timed actions of each rank."""
    run = _Run(order, costs, transfer, overlaps)
    while sum(run.advance(rank) for rank in range(order.ranks)):
        pass
    waiting = [
        str(order.actions[r][len(done)]) for r, done in enumerate(run.done) if len(done) < len(order.actions[r])
    ]
    if waiting:
        raise ScheduleError(f"{order.schedule}: the ranks wait for each other, at {', '.join(waiting)}")
    return run.done


class _Run:
    """The state of a simulation: the next action of each rank, and the tensors that have arrived."""

    def __init__(self, order: ActionOrder, costs: Sequence[StageCost], transfer: float, overlaps: bool) -> None:
        self.order, self.transfer, self.overlaps = order, transfer, overlaps
        self.durations = {work: [duration(work, cost) for cost in costs] for work in Work}
        self.done: list[list[Timed]] = [[] for _ in range(order.ranks)]
        self.free = [0.0] * order.ranks
        self.arrived: dict[tuple[bool, int, int], float] = {}  # (forward?, stage, chunk) -> arrival of the input
        self.ended: dict[tuple[bool, int, int], float] = {}  # (forward?, stage, chunk) -> end of the pass
        self.links: dict[tuple[int, int], float] = defaultdict(float)

    def advance(self, rank: int) -> int:
        """Run the actions of a rank until one waits; return their number."""
        actions = self.order.actions[rank]
        before = len(self.done[rank])
        while len(self.done[rank]) < len(actions):
            action = actions[len(self.done[rank])]
            ready = self._ready(action)
            if ready is None:
                break
            start = max(ready, self.free[rank])
            end = start + self.durations[action.work][action.stage]
            self.done[rank].append(Timed(action, start, end))
            if action.work is not Work.WEIGHT_BACKWARD:
                self.ended[action.work is Work.FORWARD, action.stage, action.chunk] = end
            self.free[rank] = end
            self._send(rank, action, end)
        return len(self.done[rank]) - before

    def _ready(self, action: Action) -> float | None:
        """The time when the inputs of an action are on its rank; None if not known yet."""
        work, stage, chunk = action
        if work is Work.WEIGHT_BACKWARD:
            return self.ended.get((False, stage, chunk))
        if work is Work.FORWARD:
            return self.arrived.get((True, stage, chunk)) if stage else 0.0
        own = self.ended.get((True, stage, chunk))
        last = stage == self.order.stages - 1
        given = own if last else self.arrived.get((False, stage, chunk))
        return None if own is None or given is None else max(own, given)

    def _send(self, rank: int, action: Action, end: float) -> None:
        """Hand the output of an action to the neighbouring stage, if there is one."""
        forward = action.work is Work.FORWARD
        to = action.stage + (1 if forward else -1)
        if action.work is Work.WEIGHT_BACKWARD or not 0 <= to < self.order.stages:
            return
        there = self.order.stage_ranks[to]
        if there != rank:
            end = max(end, self.links[rank, there]) + self.transfer
            self.links[rank, there] = end
            if not self.overlaps:
                self.free[rank] = end
        self.arrived[forward, to, action.chunk] = end


def duration(work: Work, cost: StageCost) -> float:
    """The seconds of a kind of work on a stage."""
    if work is Work.FORWARD:
        return cost.forward
    if work is Work.INPUT_BACKWARD:
        return cost.input_backward
    if work is Work.WEIGHT_BACKWARD:
        return cost.weight_backward
    return cost.input_backward + cost.weight_backward


def _use(order: ActionOrder, rank: int, timed: Sequence[Timed], costs: Sequence[StageCost], step: float) -> RankUse:
    """The compute and memory of a rank."""
    busy = sum(duration(t.action.work, costs[t.action.stage]) for t in timed)
    own = [cost for cost, owner in zip(costs, order.stage_ranks) if owner == rank]
    state = sum(cost.state for cost in own)
    start = state - sum(cost.gradients for cost in own)
    held, peak = _most_held([t.action for t in timed], costs, start)
    return RankUse(busy, 1 - busy / step if step else 0.0, held, state, peak)


def _most_held(actions: Sequence[Action], costs: Sequence[StageCost], start: float) -> tuple[int, float]:
    """The most micro-batches, and the most bytes, that a rank holds at once.

    Activations remain until the last backward action of their stage and micro-batch. The inputs of the first stage require
    no gradients, so torch does nothing in its backward of inputs.

    Args:
        start: bytes before the first action.
    """
    last = {(action.stage, action.chunk): action for action in actions}
    begun: set[int] = set()
    held = most = 0
    now = peak = start
    for action in actions:
        work, stage, chunk = action
        cost = costs[stage]
        if work is Work.FORWARD:
            held, now = held + 1, now + cost.activations
            most, peak = max(most, held), max(peak, now)
            between = 0.0
        else:
            between = cost.between_halves if stage else 0.0
            peak = max(peak, now + cost.temporary * (work is not Work.WEIGHT_BACKWARD))
        if work is Work.INPUT_BACKWARD:
            now += between
        elif work is not Work.FORWARD and stage not in begun:
            begun.add(stage)
            now += cost.gradients
        if last[stage, chunk] == action:
            held, now = held - 1, now - cost.activations - between * (work is Work.WEIGHT_BACKWARD)
        peak = max(peak, now)
    return most, peak


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
