"""The memory of a device and the seconds of a step or token in a layout: products, moved bytes, launches, collectives and the bubble.

Each operation takes the longer of its products and its bytes on the device; the host launches them one by one, so a run of
many small operations takes the host's time, and hides collectives. Gathers and sums of ``fully_shard`` run beside the
computation of a unit; the collectives of ``tp`` and ``ep`` do not.

With stages, the memory is that of the layers of the largest list, cut into about the same bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from modular_converter.parallel.advice.devices import Cluster, Device
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
from modular_converter.parallel.advice.recording import Kernel, RunUse, SegmentUse, StretchUse
from modular_converter.parallel.advice.subject import ModelInQuestion, WeightGroup, weight_groups
from modular_converter.parallel.errors import AdviceError
from modular_converter.parallel.pipeline.chain import balanced, spans
from modular_converter.parallel.schedule.forecast import PipelineSetting, Timeline, simulate
from modular_converter.parallel.schedule.orders import SCHEDULES, ActionOrder, Work
from modular_converter.parallel.schedule.stage_costs import StageCost


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


ERROR = 0.4
"""The part of a predicted time by which the measured one may differ: see the table in docs/advise.md."""


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step in training, or of all tokens of an answer.

    Attributes:
        compute: of operations on the device, or of their launches.
        exchange: of collectives that nothing hides.
        bubble: of ranks that wait for other stages.
        update: of the optimizer.
        token: of one more token, without training.
    """

    compute: float
    exchange: float
    bubble: float = 0.0
    update: float = 0.0
    token: float = 0.0

    @property
    def seconds(self) -> float:
        return self.compute + self.exchange + self.bubble + self.update

    @property
    def band(self) -> tuple[float, float]:
        """The shortest and the longest time within the error of the figures."""
        return self.seconds * (1 - ERROR), self.seconds * (1 + ERROR)


class Links:
    """The seconds of collectives over groups of a layout. Ranks of ``tp`` are neighbours, then data ranks, then stages."""

    def __init__(self, cluster: Cluster, setting: LayoutSetting) -> None:
        self.device, self.each = cluster.device, cluster.each
        layout = setting.layout
        self.shares = self._speed(1, layout.shares)
        self.context = self._speed(layout.shares, layout.cp)
        self.shards = self._speed(layout.shares, layout.shards)
        self.replicas = self._speed(layout.shares * layout.shards, layout.dp_replicate)
        self.stages = self._speed(layout.shares * layout.data, layout.pp)

    def _speed(self, inside: int, ranks: int) -> float:
        """GB/s of each device of a group whose neighbours are ``inside`` devices apart."""
        return self.device.link if inside * ranks <= self.each else self.device.network

    def collective(self, name: str, size: float, ranks: int, speed: float) -> float:
        """Seconds of a collective whose whole tensor has so many bytes (of an all-gather of shares: of one share)."""
        if ranks < 2 or not size:
            return 0.0
        whole = size * ranks if name == "all-gather" else size
        passes = 2 if name == "all-reduce" else 1
        return passes * whole * (ranks - 1) / ranks / (speed * 1e9) + self.device.link_us * 1e-6


def time_of_step(subject: ModelInQuestion, setting: LayoutSetting, cluster: Cluster) -> StepTime:
    """The time of a step. Raises ``PlanError`` as ``footprint`` does."""
    links, layout = Links(cluster, setting), setting.layout
    groups = subject.groups(setting.shares, layout.shares)
    dtype = subject.request.dtype
    speed = Speed(cluster.device, dtype)
    if layout.pp > 1:
        return _staged(subject, setting, speed, links, stages_of(subject, setting, groups))
    use = subject.use(setting.micro_rows, setting.run)
    if not subject.trains:
        return _inference(subject, setting, speed, links, use)
    units = weight_units(setting, groups)
    compute, exchange = _pass_times(use.segments, units, setting, speed, links)
    if setting.accumulate > 1:
        earlier = _pass_times(use.segments, units, setting, speed, links, sums=setting.sync_each_batch)
        compute += earlier[0] * (setting.accumulate - 1)
        exchange += earlier[1] * (setting.accumulate - 1)
    update = speed.seconds(optimizer_of(setting, groups).kernels)
    if setting.offload:
        # In each forward weights to the device twice, the sums of gradients back; the update on the host.
        summed = setting.accumulate if setting.sync_each_batch else 1
        moved = sum(2 * one.part * setting.accumulate + one.reduced * summed for one in units.values())
        exchange += moved / (speed.device.host_link * 1e9)
        update *= speed.device.bandwidth / HOST_BANDWIDTH
    return StepTime(compute, exchange, update=update)


HOST_BANDWIDTH = 100.0
"""GB/s of the memory of a host, for one process."""


@dataclass(frozen=True)
class Speed:
    """The speed of a device for operations of one type."""

    device: Device
    dtype: str
    known: dict[int, tuple[StretchUse, float]] = field(default_factory=dict, compare=False, repr=False)

    def seconds(self, kernels: Iterable[Kernel]) -> float:
        """Seconds of the device for operations."""
        one, total = self.device, 0.0
        peak, moves, least = one.peak(self.dtype), one.bandwidth * 1e9 * one.moves, one.kernel_us * 1e-6
        for kernel in kernels:
            part = one.products if kernel.moved else one.masked if kernel.masked else one.attention
            total += max(kernel.flops / (peak * part), kernel.moved / moves, least)
        return total

    def forward(
        self, one: SegmentUse, exchange: float, unit: WeightUnit | None = None, launch_us: float | None = None
    ) -> float:
        """Seconds of the forward of a segment, without its exchanges of so many seconds; of a unit of ``fully_shard``.

        Args:
            launch_us: of the host for an operation; by default that of a forward which keeps tensors for a backward.
        """
        return self._longer(one.forward, self.device.launch_us if launch_us is None else launch_us, exchange, unit)

    def backward(self, one: SegmentUse, exchange: float, unit: WeightUnit | None = None) -> float:
        """The same of the backward."""
        return self._longer(one.backward, self.device.backward_us, exchange, unit)

    def _longer(self, use: StretchUse, launch_us: float, exchange: float, unit: WeightUnit | None) -> float:
        """Seconds of a segment in one phase beside its exchanges: of the device, or what the host takes longer."""
        found = self.known.get(id(use))  # layers of a kind have the same use
        if found is None or found[0] is not use:
            found = self.known[id(use)] = use, self.seconds(use.kernels)
        host = len(use.kernels) * launch_us + (self.device.unit_us if unit else 0.0)
        host = (host + len(use.collectives) * self.device.shared_us) * 1e-6
        return max(found[1], host - exchange)


def _exchanges(use: StretchUse, setting: LayoutSetting, links: Links) -> float:
    each = (setting.layout.shares, links.shares), (setting.layout.cp, links.context)
    return sum(links.collective(one.name, one.size, *each[one.context]) for one in use.collectives)


def _pass_times(
    segments: Sequence[SegmentUse],
    units: dict[str, WeightUnit],
    setting: LayoutSetting,
    speed: Speed,
    links: Links,
    sums: bool = True,
) -> tuple[float, float]:
    """Seconds of computation, and of what it does not hide, of a forward and backward.

    Args:
        sums: whether data ranks sum up the gradients, as they do in the last forward of a step.
    """
    layout = setting.layout
    compute = exchange = 0.0
    waiting = 0.0  # seconds of gathers and sums that may run beside the computation
    for one in segments:
        unit = units.get(one.path) if one.path else None
        own = _exchanges(one.forward, setting, links), _exchanges(one.backward, setting, links)
        spread = unit if setting.spreads else None
        times = speed.forward(one, own[0], spread), speed.backward(one, own[1], spread)
        exchange += sum(own)
        compute += sum(times)
        if unit is None or not setting.spreads:
            continue
        gather = links.collective("gather", unit.gathered, layout.shards, links.shards)
        summing = _sums(unit, setting, links) if sums else 0.0
        again = gather if setting.reshard and layout.shards > 1 else 0.0
        waiting += max(0.0, gather - times[0]) + max(0.0, again + summing - times[1])
    if setting.spreads:
        root = units[""]
        waiting += links.collective("gather", root.gathered, layout.shards, links.shards)
        waiting += _sums(root, setting, links) if sums else 0.0
    return compute, exchange + waiting


def _sums(unit: WeightUnit, setting: LayoutSetting, links: Links) -> float:
    """Seconds of the sum of a unit's gradients over the data ranks."""
    sums = links.collective("sum", unit.sums, setting.layout.shards, links.shards)
    return sums + links.collective("all-reduce", unit.reduced, setting.layout.dp_replicate, links.replicas)


def _inference(subject: ModelInQuestion, setting: LayoutSetting, speed: Speed, links: Links, use: RunUse) -> StepTime:
    """A forward of the rows, and the tokens after it: each reads all weights and caches once."""
    units = weight_units(setting, subject.groups(setting.shares, setting.layout.shares))
    compute = exchange = 0.0
    one = speed.device
    launch_us = _answering_us(one, setting)
    for segment in use.segments:
        own, unit = _exchanges(segment.forward, setting, links), units.get(segment.path) if setting.spreads else None
        seconds = speed.forward(segment, own, unit, launch_us)
        gather = links.collective("gather", unit.gathered, setting.layout.shards, links.shards) if unit else 0.0
        compute, exchange = compute + seconds, exchange + own + max(0.0, gather - seconds)
    weights = sum(unit.part for unit in units.values())
    read = (weights + use.kept - use.result) / (one.bandwidth * 1e9 * one.moves)
    launches = sum(len(segment.forward.kernels) for segment in use.segments) * launch_us * 1e-6
    calls = sum(len(segment.forward.collectives) for segment in use.segments) * one.link_us * 1e-6
    token = max(read, launches + one.token_us * 1e-6) + (calls if setting.layout.shares > 1 else 0.0)
    asked = one.token_us * 1e-6 if setting.tokens > 1 else 0.0  # of the first token; one alone is a forward
    return StepTime(compute + asked + token * max(setting.tokens - 1, 0), exchange, token=token)


def _answering_us(device: Device, setting: LayoutSetting) -> float:
    """Microseconds of the host for an operation of a forward that keeps nothing for a backward."""
    return device.ranks_us if setting.layout.shares > 1 else device.plain_us


def timeline_of_stages(subject: ModelInQuestion, setting: LayoutSetting, cluster: Cluster) -> Timeline:
    """The passes of a step in a layout with stages. Raises ``PlanError`` as ``footprint`` does."""
    stages = stages_of(subject, setting, subject.groups(setting.shares, setting.layout.shares))
    return _passes(
        setting, Speed(cluster.device, subject.request.dtype), Links(cluster, setting), stages, subject.trains
    )


def _passes(setting: LayoutSetting, speed: Speed, links: Links, stages: Sequence[Stage], trains: bool) -> Timeline:
    costs = []
    launch_us = None if trains else _answering_us(speed.device, setting)
    for stage in stages:
        forward = backward = 0.0
        for one in stage.segments:
            own = _exchanges(one.forward, setting, links), _exchanges(one.backward, setting, links)
            forward += speed.forward(one, own[0], launch_us=launch_us) + own[0]
            backward += speed.backward(one, own[1]) + own[1]
        costs.append(StageCost(forward, backward / 2, backward / 2))
    sent = sent_bytes(stages) / (links.stages * 1e9)
    return simulate(order_of_passes(setting, trains), costs, sent + speed.device.link_us * 1e-6)


def _staged(
    subject: ModelInQuestion, setting: LayoutSetting, speed: Speed, links: Links, stages: Sequence[Stage]
) -> StepTime:
    updates, waiting, layout = [], 0.0, setting.layout
    for stage in stages:
        units = weight_units(setting, stage.groups)
        if subject.trains:
            updates.append(speed.seconds(optimizer_of(setting, stage.groups).kernels))
        gathered, sums = (sum(one.gathered for one in units.values()), sum(one.sums for one in units.values()))
        whole = WeightUnit(sums=sums, reduced=sum(one.reduced for one in units.values()))
        moved = links.collective("gather", gathered, layout.shards, links.shards)
        waiting = max(waiting, moved + _sums(whole, setting, links))
    line = _passes(setting, speed, links, stages, subject.trains)
    busy = max(use.busy for use in line.uses)
    per_rank = len(stages) // setting.layout.pp
    update = max(updates, default=0.0) * per_rank
    return StepTime(busy, waiting * per_rank, line.step - busy, update)
