"""The memory of a device in any layout; with stages, that of the layers of the largest list, cut into about the same bytes."""

from __future__ import annotations

import functools
from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass

from modular_converter.parallel.advice.devices import Device
from modular_converter.parallel.advice.memory import (
    OF_OPTIMIZER,
    Footprint,
    LayoutSetting,
    Moment,
    OptimizerUse,
    WeightUnit,
    assembled,
    optimizer_of,
    training_moments,
    unstaged_footprint,
    weight_units,
)
from modular_converter.parallel.advice.recording import SegmentUse
from modular_converter.parallel.advice.subject import ModelInQuestion, WeightGroup, weight_groups
from modular_converter.parallel.errors import AdviceError
from modular_converter.parallel.pipeline.chain import balanced, spans
from modular_converter.parallel.schedule.forecast import PipelineSetting
from modular_converter.parallel.schedule.orders import SCHEDULES, ActionOrder, Work


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage: its segments of one micro-batch, and its weights."""

    segments: tuple[SegmentUse, ...]
    groups: tuple[WeightGroup, ...]

    @functools.cached_property
    def kind(self) -> Hashable:
        """Stages of the same kind need the same bytes: the segments of layers alike have their two phases in common."""
        phases = tuple((id(one.forward), id(one.backward)) for one in self.segments)
        return phases, tuple(one.kinds for one in self.groups)

    @functools.cached_property
    def kept(self) -> float:
        """Bytes of activations that one micro-batch leaves for its backward."""
        return sum(one.forward.net for one in self.segments)


def stages_of(subject: ModelInQuestion, setting: LayoutSetting, groups: Sequence[WeightGroup]) -> list[Stage]:
    """The stages in order. Raises ``AdviceError`` if the model has too few layers, or its weights are in no list of layers."""
    use = subject.use(setting.micro_rows, setting.run)
    count = setting.layout.pp * SCHEDULES[setting.schedule].usual
    lists: dict[str, list[WeightGroup]] = {}
    for one in groups:
        if one.path:
            lists.setdefault(one.path.rpartition(".")[0], []).append(one)
    if not lists:
        raise AdviceError("its weights are in no list of layers, so it has no stages")
    divided = {
        one.path: one for one in max(lists.values(), key=lambda members: sum(one.whole_bytes for one in members))
    }
    places = [number for number, one in enumerate(use.segments) if one.path in divided]
    run = [divided[use.segments[number].path] for number in places]
    if len(run) != len(divided) or len(run) < count:
        raise AdviceError(f"{len(divided)} layers do not make {count} stages")
    before, behind, again = _outside(groups, divided)
    # As `Pipeline` cuts: a tied weight counts on both sides.
    head, tail = (sum(one.whole_bytes for one in some) for some in (before, behind + again))
    cuts = _cuts(tuple(one.whole_bytes for one in run), count, head, tail)
    # Code between two layers belongs to the second of them.
    borders = [0, *(places[cut - 1] + 1 for cut in cuts), len(use.segments)]
    found = []
    for number, span in enumerate(spans(cuts, len(run))):
        own = [run[at] for at in span]
        own += before * (number == 0) + (behind + again) * (number == count - 1)
        found.append(Stage(tuple(use.segments[borders[number] : borders[number + 1]]), tuple(own)))
    return found


def _outside(
    groups: Sequence[WeightGroup], divided: Container[str]
) -> tuple[list[WeightGroup], list[WeightGroup], list[WeightGroup]]:
    """The weights outside of the divided layers: of the first stage, of the last, and those that the last has, too.

    A weight is of the first stage if it stands before the layers in the order in which the model names its weights.
    """
    parts = [part for group in groups if group.path not in divided for part in group.parts]
    first = min(part.number for group in groups if group.path in divided for part in group.parts)
    before, behind = ([one for one in parts if (one.number > first) is late] for late in (False, True))
    return weight_groups(before), weight_groups(behind), weight_groups(one for one in before if one.tied)


@functools.lru_cache(256)
def _cuts(costs: tuple[int, ...], stages: int, head: int, tail: int) -> tuple[int, ...]:
    return balanced(costs, stages, head, tail)


def order_of_passes(setting: LayoutSetting, trains: bool) -> ActionOrder:
    """The passes of each rank. Raises ``ScheduleError`` if the schedule does not allow the sizes."""
    per_rank = SCHEDULES[setting.schedule].usual
    return PipelineSetting(setting.schedule, setting.layout.pp, per_rank, setting.chunks, trains).order()


def staged_footprint(
    subject: ModelInQuestion, setting: LayoutSetting, device: Device, groups: Sequence[WeightGroup]
) -> Footprint:
    """The memory of the rank that needs most."""
    stages = stages_of(subject, setting, groups)
    held = _held(setting.schedule, setting.layout.pp, setting.chunks, subject.trains)
    sent = sent_bytes(stages)
    largest: dict[Hashable, list[dict[int, int]]] = {}
    for own in held:  # of ranks with stages alike, one that holds no more of any than another needs no more
        others = largest.setdefault(tuple(stages[n].kind for n in own), [])
        if not any(all(a >= b for a, b in zip(other.values(), own.values())) for other in others):
            others.append(own)
    needs = [
        _of_rank(subject, setting, device, {stages[n]: most for n, most in own.items()}, sent)
        for others in largest.values()
        for own in others
    ]
    return max(needs, key=lambda one: one.weights + one.optimizer + one.peak.size)


def sent_bytes(stages: Sequence[Stage]) -> float:
    """Bytes of the hidden states of one micro-batch that a stage sends to the next, at most."""
    return max((stage.segments[-1].forward.result for stage in stages[:-1]), default=0.0)


@functools.lru_cache(256)
def _held(schedule: str, ranks: int, chunks: int, trains: bool) -> list[dict[int, int]]:
    """For each rank its stages, with the most micro-batches of each whose activations are there at once."""
    if trains and SCHEDULES[schedule].steady:
        # Two for each of its two stages, of which the second half only repeats the first.
        chunks = min(chunks, 4 * ranks)
    order = PipelineSetting(schedule, ranks, SCHEDULES[schedule].usual, chunks, trains).order()
    found = []
    for rank, actions in enumerate(order.actions):
        own = [n for n, owner in enumerate(order.stage_ranks) if owner == rank]
        most, now = dict.fromkeys(own, 0), dict.fromkeys(own, 0)
        for action in actions:
            if action.work is Work.FORWARD:
                now[action.stage] += 1
                most[action.stage] = max(most[action.stage], now[action.stage])
            elif action.work in (Work.BACKWARD, Work.WEIGHT_BACKWARD):
                now[action.stage] -= 1
        found.append(most)
    return found


def _of_rank(
    subject: ModelInQuestion, setting: LayoutSetting, device: Device, own: dict[Stage, int], sent: float
) -> Footprint:
    """What a rank holds that has these stages, with the most micro-batches of each whose activations are there at once."""
    trains = subject.trains
    groups = [group for stage in own for group in stage.groups]
    units = weight_units(setting, groups)
    weights, reduced = sum(one.part for one in units.values()), sum(one.reduced for one in units.values())
    optimizer = optimizer_of(setting, groups) if trains else OptimizerUse(0.0, 0.0, ())
    waiting = sum(stage.kept * (number - 1) for stage, number in own.items())
    waiting += sent * setting.chunks * len(own) * (2 if trains else 1)
    peak = max((_peak(stage, units, setting, trains) for stage in own), key=lambda one: one.size)
    peak = peak._replace(activations=peak.activations + waiting)
    step = Moment(OF_OPTIMIZER, reduced, optimizer.step, 0.0)
    peak = max(peak, step, key=lambda one: one.size) if trains else peak
    return assembled(subject, setting, device, groups, weights, reduced if trains else 0.0, optimizer.state, peak)


def _peak(stage: Stage, units: dict[str, WeightUnit], setting: LayoutSetting, trains: bool) -> Moment:
    """The peak of one micro-batch, with the whole gradients of earlier ones and all weights gathered."""
    gathered = sum(one.gathered for one in units.values())
    if not trains:
        held, most = 0.0, 0.0
        for one in stage.segments:
            most = max(most, held + one.forward.peak)
            held += one.forward.net
        return Moment("forward of a micro-batch", 0.0, most, gathered)
    moments = [one._replace(gathered=gathered) for one in training_moments(stage.segments, units, setting, keeps=True)]
    whole = sum(one.gradients for one in units.values()) if setting.chunks > 1 else 0.0
    highest = max(moments, key=lambda one: max(one.gradients, whole) + one.activations)
    summed = sum(one.sums + one.reduced for one in units.values()) if setting.spreads else 0.0
    return highest._replace(gradients=max(highest.gradients, whole) + summed)


def footprint(subject: ModelInQuestion, setting: LayoutSetting, device: Device) -> Footprint:
    """The memory of a device. Raises ``PlanError`` if the model does not allow the layout, or cannot be run without data."""
    layout = setting.layout
    for number, parts in ((setting.chunks, "micro-batches"), (setting.accumulate, "forwards")):
        if setting.rows % number:
            raise AdviceError(f"{setting.rows} rows do not divide into {number} {parts}")
    if layout.pp > 1 and setting.accumulate > 1:
        raise AdviceError(f"stages have micro-batches in place of several forwards a step; this layout is {layout}")
    if layout.pp == 1 and setting.chunks > 1:
        raise AdviceError(f"{setting.chunks} micro-batches need a layout with pp, such as pp2; this one is {layout}")
    if setting.sync_each_batch and setting.accumulate == 1:
        raise AdviceError("sums of the gradients of each forward need several forwards a step")
    if setting.sync_each_batch and not setting.spreads:
        raise AdviceError(f"sums of gradients need a layout with data ranks, such as fsdp2; this one is {layout}")
    if setting.offload and not setting.spreads:
        raise AdviceError(f"weights on the host need a layout with data ranks, such as fsdp2; this one is {layout}")
    if setting.sequence_parallel and (layout.tp == 1 or layout.pp > 1):
        raise AdviceError(
            f"parts of a sequence need a layout with tp and without pp, such as tp2; this one is {layout}"
        )
    if layout.cp > 1 and setting.sequence_parallel:
        raise AdviceError(f"{layout}: cp does not go with sequence_parallel; leave one of them out")
    if layout.cp > 1 and setting.tokens > 1:
        raise AdviceError(f"{layout}: cp generates no tokens; ask for --tokens 1, a forward alone, or take tp")
    if setting.weight_type and subject.trains and not setting.spreads:
        raise AdviceError(f"another type of products needs data ranks, such as fsdp2; this layout is {layout}")
    groups = subject.groups(setting.shares, layout.shares)
    if layout.pp > 1:
        return staged_footprint(subject, setting, device, groups)
    use = subject.use(setting.micro_rows, setting.run)
    return unstaged_footprint(subject, setting, device, groups, use)
