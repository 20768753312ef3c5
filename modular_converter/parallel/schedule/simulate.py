"""A simulation of a schedule: when each action starts and ends, and the bytes that each rank holds meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.actions import Action, ActionOrder, Work
from modular_converter.parallel.schedule.stage_costs import StageCost


@dataclass(frozen=True)
class Timed:
    """One action with its start and its end in seconds; a send that the rank waits for is not part of it."""

    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class RankUse:
    """One rank in a step.

    Attributes:
        busy: seconds of compute.
        bubble: the idle share of the step, 0 to 1.
        held: the most micro-batches whose activations lie on the rank at once, counted for each stage.
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
        step: seconds from the first start to the last end; the optimizer's own step is no part of it.
        ranks: the actions of each rank, in order.
    """

    order: ActionOrder
    step: float
    ranks: tuple[tuple[Timed, ...], ...]
    uses: tuple[RankUse, ...]

    @property
    def bubble(self) -> float:
        """The idle share of all ranks together, 0 to 1."""
        return sum(use.bubble for use in self.uses) / len(self.uses)

    @property
    def speedup(self) -> float:
        """How many times faster the step is than the same compute on one device of any size."""
        return sum(use.busy for use in self.uses) / self.step if self.step else float(self.order.ranks)


def simulate(order: ActionOrder, costs: Sequence[StageCost], transfer: float = 0.0, overlaps: bool = True) -> Timeline:
    """Run an order with these costs.

    Args:
        costs: one a stage, for one micro-batch.
        transfer: seconds between two ranks for one micro-batch, or for its gradient. One direction between two ranks
            carries one transfer at a time.
        overlaps: whether a rank computes while it sends; else it waits until its transfer has arrived.

    Raises:
        ScheduleError: an order in which ranks wait for each other; the actions that wait are named.
    """
    run = _Run(order, costs, transfer, overlaps)
    while sum(run.advance(rank) for rank in range(order.ranks)):
        pass
    waiting = [
        str(order.actions[r][len(done)]) for r, done in enumerate(run.done) if len(done) < len(order.actions[r])
    ]
    if waiting:
        raise ScheduleError(f"{order.schedule}: the ranks wait for each other, at {', '.join(waiting)}")
    step = max((done[-1].end for done in run.done if done), default=0.0)
    uses = tuple(_use(order, rank, done, costs, step) for rank, done in enumerate(run.done))
    return Timeline(order, step, tuple(map(tuple, run.done)), uses)


class _Run:
    """The state of a simulation: where each rank stands, and what has arrived where."""

    def __init__(self, order: ActionOrder, costs: Sequence[StageCost], transfer: float, overlaps: bool) -> None:
        self.order, self.costs, self.transfer, self.overlaps = order, costs, transfer, overlaps
        self.done: list[list[Timed]] = [[] for _ in range(order.ranks)]
        self.free = [0.0] * order.ranks
        self.arrived: dict[tuple[bool, int, int], float] = {}  # (forward?, stage, chunk) -> when its input is there
        self.ended: dict[Action, float] = {}
        self.links: dict[tuple[int, int], float] = defaultdict(float)

    def advance(self, rank: int) -> int:
        """Run the actions of a rank until one waits; how many ran."""
        actions = self.order.actions[rank]
        before = len(self.done[rank])
        while len(self.done[rank]) < len(actions):
            action = actions[len(self.done[rank])]
            ready = self._ready(action)
            if ready is None:
                break
            start = max(ready, self.free[rank])
            end = start + duration(action, self.costs[action.stage])
            self.done[rank].append(Timed(action, start, end))
            self.ended[action] = end
            self.free[rank] = end
            self._send(rank, action, end)
        return len(self.done[rank]) - before

    def _ready(self, action: Action) -> float | None:
        """When what an action needs is on its rank; None if that is not known yet."""
        work, stage, chunk = action
        if work is Work.WEIGHT_BACKWARD:
            return self.ended.get(Action(Work.INPUT_BACKWARD, stage, chunk))
        if work is Work.FORWARD:
            return self.arrived.get((True, stage, chunk)) if stage else 0.0
        own = self.ended.get(Action(Work.FORWARD, stage, chunk))
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


def duration(action: Action, cost: StageCost) -> float:
    """Seconds of an action on a stage of this cost."""
    if action.work is Work.FORWARD:
        return cost.forward
    if action.work is Work.INPUT_BACKWARD:
        return cost.input_backward
    if action.work is Work.WEIGHT_BACKWARD:
        return cost.weight_backward
    return cost.input_backward + cost.weight_backward


def _use(order: ActionOrder, rank: int, done: Iterable[Timed], costs: Sequence[StageCost], step: float) -> RankUse:
    """What a rank did and held. Activations stay until the last backward action of their stage and micro-batch."""
    timed = list(done)
    last = {(t.action.stage, t.action.chunk): t.action for t in timed}
    busy = sum(duration(t.action, costs[t.action.stage]) for t in timed)
    held = most = 0
    state = sum(cost.state for cost, owner in zip(costs, order.stage_ranks) if owner == rank)
    now = peak = state
    for action in (t.action for t in timed):
        if action.work is Work.FORWARD:
            held, now = held + 1, now + costs[action.stage].activations
            most, peak = max(most, held), max(peak, now)
        if last[action.stage, action.chunk] == action:
            held, now = held - 1, now - costs[action.stage].activations
    return RankUse(busy, 1 - busy / step if step else 0.0, most, state, peak)
