"""A simulation of a schedule: start and end of each action, and the bytes that each rank holds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.orders import Action, ActionOrder, Work
from modular_converter.parallel.schedule.stage_costs import StageCost


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
