"""The memory and the passes of a model in stages: the layers of the largest list, cut into stages of about the same bytes."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from modular_converter.parallel.advice.devices import Device
from modular_converter.parallel.advice.memory import (
    Footprint,
    LayoutSetting,
    Moment,
    WeightUnit,
    assembled,
    optimizer_of,
    training_moments,
    weight_units,
)
from modular_converter.parallel.advice.optimizer_state import OptimizerUse
from modular_converter.parallel.advice.profile import SegmentUse
from modular_converter.parallel.advice.subject import ModelInQuestion, WeightPart
from modular_converter.parallel.errors import AdviceError
from modular_converter.parallel.pipeline.chain import balanced, spans
from modular_converter.parallel.schedule.forecast import PipelineSetting
from modular_converter.parallel.schedule.orders import SCHEDULES, ActionOrder, Work
from modular_converter.parallel.schedule.simulate import Timeline, simulate
from modular_converter.parallel.schedule.stage_costs import StageCost


@dataclass(frozen=True)
class Stage:
    """A stage: its segments of one micro-batch, and its weights."""

    segments: tuple[SegmentUse, ...]
    parts: tuple[WeightPart, ...]

    @functools.cached_property
    def kept(self) -> float:
        """Bytes of activations that one micro-batch leaves for its backward."""
        return sum(one.forward.net for one in self.segments)


def stages_of(subject: ModelInQuestion, setting: LayoutSetting, parts: Sequence[WeightPart]) -> list[Stage]:
    """The stages in order. Raises ``AdviceError`` if the model has too few layers, or its weights are in no list of layers."""
    use = subject.use(setting.micro_rows, setting.shares, setting.layout.shares, setting.recompute)
    per_rank = SCHEDULES[setting.schedule].usual
    count = setting.layout.pp * per_rank
    sizes: dict[str, float] = {}
    for one in parts:
        sizes[one.unit] = sizes.get(one.unit, 0.0) + float(prod(one.shape))
    lists: dict[str, list[str]] = {}
    for path in sizes:
        if path:
            lists.setdefault(path.rpartition(".")[0], []).append(path)
    if not lists:
        raise AdviceError("its weights are in no list of layers, so it has no stages")
    divided = max(lists.values(), key=lambda paths: sum(sizes[path] for path in paths))
    run = [one.path for one in use.segments if one.path in set(divided)]
    if len(run) != len(divided) or len(run) < count:
        raise AdviceError(f"{len(divided)} layers do not make {count} stages")
    first, last = (next(n for n, one in enumerate(use.segments) if one.path == path) for path in (run[0], run[-1]))
    outside = [one for one in parts if one.unit not in set(divided)]
    behind = {one.name for one in outside if not _is_before(one, subject, run)}
    head, tail = (sum(prod(one.shape) for one in outside if (one.name in behind) is late) for late in (False, True))
    cuts = _cuts(tuple(int(sizes[path]) for path in run), count, int(head), int(tail))
    found = []
    for number, span in enumerate(spans(cuts, len(run))):
        own = {run[at] for at in span}
        inner = [one for at, one in enumerate(use.segments) if first <= at <= last and _owner(use.segments, at) in own]
        ends = [*use.segments[:first]] * (number == 0), [*use.segments[last + 1 :]] * (number == count - 1)
        kept = [one for one in parts if one.unit in own]
        kept += [one for one in outside if number == 0 and one.name not in behind]
        kept += [one for one in outside if number == count - 1 and (one.name in behind or _is_tied(one, subject))]
        found.append(Stage((*ends[0], *inner, *ends[1]), tuple(kept)))
    return found


@functools.lru_cache(256)
def _cuts(costs: tuple[int, ...], stages: int, head: int, tail: int) -> tuple[int, ...]:
    return balanced(costs, stages, head, tail)


def _owner(segments: Sequence[SegmentUse], at: int) -> str:
    """The layer that a segment belongs to: code between layers belongs to the layer behind it."""
    return segments[at].path or segments[min(at + 1, len(segments) - 1)].path


def _is_before(part: WeightPart, subject: ModelInQuestion, run: Sequence[str]) -> bool:
    """Whether a weight outside of the layers stands before them, in the order in which the model names its weights."""
    names = [name for name, _ in subject.model.named_parameters()]
    return names.index(part.name) < names.index(next(name for name in names if name.startswith(f"{run[0]}.")))


def _is_tied(part: WeightPart, subject: ModelInQuestion) -> bool:
    """Whether other modules have the weight under another name, so that the first and the last stage both hold it."""
    weight = subject.model.get_parameter(part.name)
    names = [name for name, one in subject.model.named_parameters(remove_duplicate=False) if one is weight]
    return len(names) > 1


def order_of_passes(setting: LayoutSetting, trains: bool) -> ActionOrder:
    """The passes of each rank. Raises ``ScheduleError`` if the schedule does not allow the sizes."""
    per_rank = SCHEDULES[setting.schedule].usual
    return PipelineSetting(setting.schedule, setting.layout.pp, per_rank, setting.chunks, trains).order()


def staged_footprint(
    subject: ModelInQuestion, setting: LayoutSetting, device: Device, parts: Sequence[WeightPart]
) -> Footprint:
    """The memory of the rank that needs most."""
    stages = stages_of(subject, setting, parts)
    order = order_of_passes(setting, subject.trains)
    cost = StageCost(1.0, 1.0, 1.0)
    timeline = simulate(order, [cost] * len(stages))
    sent = _handed_over(stages)
    found = []
    for rank in range(setting.layout.pp):
        own = [n for n, owner in enumerate(order.stage_ranks) if owner == rank]
        found.append(_of_rank(subject, setting, device, [stages[n] for n in own], _held(timeline, rank, own), sent))
    return max(found, key=lambda one: one.allocated)


def _handed_over(stages: Sequence[Stage]) -> float:
    """Bytes of the hidden states of one micro-batch: what the first segment of a stage adds to the gradients at least."""
    ends = [abs(one.backward.net) for stage in stages[1:] for one in stage.segments[:1] if one.path]
    return max(ends, default=0.0)


def _held(timeline: Timeline, rank: int, own: Sequence[int]) -> list[int]:
    """The most micro-batches of each stage whose activations are on the rank at once."""
    most, now = dict.fromkeys(own, 0), dict.fromkeys(own, 0)
    for timed in timeline.ranks[rank]:
        action = timed.action
        if action.work is Work.FORWARD:
            now[action.stage] += 1
            most[action.stage] = max(most[action.stage], now[action.stage])
        elif action.work in (Work.BACKWARD, Work.WEIGHT_BACKWARD):
            now[action.stage] -= 1
    return [most[stage] for stage in own]


def _of_rank(
    subject: ModelInQuestion,
    setting: LayoutSetting,
    device: Device,
    own: Sequence[Stage],
    held: Sequence[int],
    sent: float,
) -> Footprint:
    parts = [part for stage in own for part in stage.parts]
    units = weight_units(setting, parts)
    weights, reduced = sum(one.part for one in units.values()), sum(one.reduced for one in units.values())
    optimizer = optimizer_of(setting, parts) if subject.trains else OptimizerUse(0.0, 0.0, ())
    waiting = sum(stage.kept * (number - 1) for stage, number in zip(own, held))
    waiting += sent * setting.chunks * len(own) * (2 if subject.trains else 1)
    peak = max((_peak(stage, units, setting, subject.trains) for stage in own), key=lambda one: one.size)
    peak = peak._replace(activations=peak.activations + waiting)
    step = Moment("the optimizer's step", reduced, optimizer.step, 0.0)
    return assembled(
        subject,
        setting,
        device,
        parts,
        weights=weights,
        gradients=reduced if subject.trains else 0.0,
        optimizer=optimizer.state,
        peak=max(peak, step, key=lambda one: one.size) if subject.trains else peak,
    )


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
