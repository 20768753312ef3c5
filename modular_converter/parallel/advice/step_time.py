"""The seconds of a step or of a token in a layout: products, moved bytes, launches, collectives and the bubble.

Each operation takes the longer of its products and its bytes on the device; the host launches them one by one, so a run of
many small operations takes the host's time, and hides collectives. Gathers and sums of ``fully_shard`` run beside the
computation of a unit; the collectives of ``tp`` and ``ep`` do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from modular_converter.parallel.advice.devices import Cluster, Device
from modular_converter.parallel.advice.memory import LayoutSetting, WeightUnit, optimizer_of, weight_units
from modular_converter.parallel.advice.recording import Kernel, RunUse, SegmentUse, StretchUse
from modular_converter.parallel.advice.stages import Stage, order_of_passes, sent_bytes, stages_of
from modular_converter.parallel.advice.subject import ModelInQuestion
from modular_converter.parallel.schedule.forecast import Timeline, simulate
from modular_converter.parallel.schedule.stage_costs import StageCost


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
