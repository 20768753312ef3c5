"""The bytes of a device in a layout, at each moment of a step: weights, gradients, optimizer, activations, gathered weights.

Weights and optimizer are exact. What ``fully_shard`` holds beside them is that of torch: a unit (a layer, or all that is
outside of the layers) is gathered while it computes, the output of a gather stays until the next gather, and the summed
gradients of a unit are in flight while the next unit computes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch

from modular_converter.parallel.advice.devices import GIB, Device
from modular_converter.parallel.advice.recording import Kernel, OperationCounter, RunUse, SegmentUse
from modular_converter.parallel.advice.subject import ModelInQuestion, RunKind, WeightGroup, WeightKind
from modular_converter.parallel.choice.skeleton import META, Guesses
from modular_converter.parallel.errors import AdviceError
from modular_converter.parallel.layout import Layout


@dataclass(frozen=True)
class OptimizerUse:
    """The use of an optimizer.

    Attributes:
        state: bytes that it keeps on the device from step to step.
        step: bytes that a step needs beside weights, gradients and state.
        kernels: of a step.
    """

    state: float
    step: float
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class TrainedWeight:
    """The part of a weight that this device updates, the whole weight, and its type."""

    shape: tuple[int, ...]
    whole: tuple[int, ...]
    dtype: torch.dtype

    @property
    def size(self) -> float:
        """Bytes of the part."""
        return float(torch.Size(self.shape).numel() * self.dtype.itemsize)


def _adamw8bit(weights: Any) -> Any:
    if importlib.util.find_spec("torchao") is None:
        raise AdviceError("adamw8bit is the optimizer of torchao, which is not installed: pip install torchao")
    from torchao.optim import AdamW8bit

    return AdamW8bit(weights)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "adamw": lambda weights: torch.optim.AdamW(weights, foreach=True),
    "adamw-fused": lambda weights: torch.optim.AdamW(weights, foreach=False),
    "sgd": lambda weights: torch.optim.SGD(weights, foreach=True),
    "sgd-momentum": lambda weights: torch.optim.SGD(weights, momentum=0.9, foreach=True),
    "adafactor": lambda weights: torch.optim.Adafactor(weights),
    "adamw8bit": _adamw8bit,
}
"""Name -> the optimizer as torch makes it on a GPU: for lists of weights at once, or (fused) in one pass over them."""
OF_OPTIMIZER = "the optimizer's step"
"""The name of this moment."""
_IN_ONE_PASS = ("adamw-fused", "adamw8bit")
_ONE_BY_ONE = ("adafactor",)


def check_optimizer(name: str) -> None:
    """Raises ``AdviceError`` for an unknown name."""
    if name not in OPTIMIZERS:
        raise AdviceError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")


def optimizer_use(name: str, kinds: Mapping[TrainedWeight, int]) -> OptimizerUse:
    """The use of an optimizer, from a step on the meta device for each kind of weight.

    Args:
        kinds: kind of weight -> the number of weights of that kind.

    Raises ``AdviceError`` for an unknown name, or a library that is not installed.
    """
    check_optimizer(name)
    each = {kind: _stepped(name, kind) for kind in kinds}
    state = sum(each[kind].state * number for kind, number in kinds.items())
    if name in _IN_ONE_PASS:  # one kernel reads weight, gradient and state, and writes weight and state
        size = sum(kind.size * number for kind, number in kinds.items())
        return OptimizerUse(state, 0.0, (Kernel(0.0, 3 * size + 2 * state),))
    if name in _ONE_BY_ONE:
        kernels = tuple(kernel for kind, number in kinds.items() for kernel in each[kind].kernels * number)
        return OptimizerUse(state, max((one.step for one in each.values()), default=0.0), kernels)
    step = sum(each[kind].step * number for kind, number in kinds.items())
    moved = sum(kernel.moved * number for kind, number in kinds.items() for kernel in each[kind].kernels)
    return OptimizerUse(state, step, (Kernel(0.0, moved),))


@functools.lru_cache(4096)
def _stepped(name: str, kind: TrainedWeight) -> OptimizerUse:
    """The use for one weight: per entry where all state is like the weight, else of a step at its size."""
    entry = _per_entry(name, kind.dtype, len(kind.shape))
    if entry is None:
        return _at_size(name, kind)
    entries = torch.Size(kind.shape).numel()
    kernels = tuple(Kernel(0.0, one.moved * entries) for one in entry.kernels)
    return OptimizerUse(entry.state * entries, entry.step * entries, kernels)


_SIDE = 8


@functools.lru_cache(64)
def _per_entry(name: str, dtype: torch.dtype, dims: int) -> OptimizerUse | None:
    """The use for each entry of a weight; None if some state is not like the weight, such as sums over rows."""
    shape = (_SIDE,) * dims
    state, counter = _state_after_step(name, shape, dtype)
    tensors = [one for one in state.values() if isinstance(one, torch.Tensor) and one.is_meta]
    if any(type(one) is not torch.Tensor or tuple(one.shape) != shape for one in tensors):
        return None
    entries = _SIDE**dims
    kernels = tuple(Kernel(0.0, one.moved / entries) for one in counter.kernels)
    return OptimizerUse(sum(map(_bytes_of, tensors)) / entries, counter.peak / entries, kernels)


def _at_size(name: str, kind: TrainedWeight) -> OptimizerUse:
    """The use for one weight. State that is not like the weight, such as sums over rows, is that of the whole weight."""
    part, counter = _state_after_step(name, kind.shape, kind.dtype)
    if kind.whole == kind.shape:
        return OptimizerUse(sum(map(_bytes_of, part.values())), counter.peak, tuple(counter.kernels))
    whole, _ = _state_after_step(name, kind.whole, kind.dtype)
    state = 0.0
    for key, value in part.items():
        like = isinstance(value, torch.Tensor) and tuple(value.shape) == kind.shape
        state += _bytes_of(value if like else whole.get(key, value))
    return OptimizerUse(state, counter.peak, tuple(counter.kernels))


def _state_after_step(
    name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[dict[str, Any], OperationCounter]:
    """The state of a weight, and the operations of its second step."""
    weight = torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=META))
    optimizer: Any = OPTIMIZERS[name]([weight])
    weight.grad = torch.empty_like(weight)
    eager = torch.compiler.set_stance("force_eager") if name == "adamw8bit" else contextlib.nullcontext()
    with eager, Guesses():
        optimizer.step()
        counter = OperationCounter([weight, weight.grad])
        if name not in _IN_ONE_PASS:
            with counter:
                optimizer.step()
    return dict(optimizer.state[weight]), counter


def _bytes_of(value: Any) -> float:
    """The bytes of a tensor on the device, with the tensors that a subclass is made of; numbers of steps are on the host."""
    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return 0.0
    if hasattr(value, "__tensor_flatten__"):
        names, _ = value.__tensor_flatten__()
        return sum(_bytes_of(getattr(value, name)) for name in names)
    return float(value.numel() * value.element_size())


@dataclass(frozen=True)
class LayoutSetting:
    """A layout with its options.

    Attributes:
        rows: of one data rank, in a forward; with stages, of all micro-batches of a step.
        optimizer: a name in ``OPTIMIZERS``.
        weight_type: of weights and optimizer, if products are in another type.
        tokens: that are generated after the rows, without training.
        sequence_parallel: with ``tp``, whether a rank has a part of the sequence between the sharded regions.
        accumulate: forwards of a step, each of a part of the rows.
        sync_each_batch: whether data ranks sum up the gradients of each forward, so that none keeps whole ones.
    """

    layout: Layout
    rows: int
    optimizer: str = "adamw"
    recompute: bool = False
    reshard: bool = True
    offload: bool = False
    chunks: int = 1
    schedule: str = "1F1B"
    weight_type: str = ""
    tokens: int = 0
    sequence_parallel: bool = False
    accumulate: int = 1
    sync_each_batch: bool = False

    @property
    def shares(self) -> str:
        """The dimension over which each layer is divided."""
        return "ep" if self.layout.ep > 1 else "tp"

    @property
    def spreads(self) -> bool:
        """Whether ``fully_shard`` holds the weights."""
        return self.layout.dp_replicate * self.layout.shards > 1

    @property
    def run(self) -> RunKind:
        """What tells its run from others of the model."""
        layout = self.layout
        return RunKind(self.shares, layout.shares, self.recompute, self.sequence_parallel, layout.cp)

    @property
    def micro_rows(self) -> int:
        """The rows of one forward."""
        return self.rows // self.chunks // self.accumulate

    def options(self) -> str:
        """The options as arguments of ``Training``."""
        options = [f"{name}=True" for name in ("recompute", "offload", "sequence_parallel") if getattr(self, name)]
        options += ["reshard=False"] if self.layout.shards > 1 and not self.reshard else []
        if self.layout.pp > 1:
            options += [f"chunks={self.chunks}", f'schedule="{self.schedule}"']
        return ", ".join(options)

    def forwards(self) -> str:
        """The number of forwards in words, and whether gradients are summed up in each."""
        return f"{self.accumulate} forwards{', sync_each_batch' * self.sync_each_batch}"

    def __str__(self) -> str:
        words = self.options().replace("=True", "").replace('"', "")
        words += f"{', ' * bool(words)}{self.forwards()}" if self.accumulate > 1 else ""
        return f"{self.layout}{f' ({words})' if words else ''}"


class Moment(NamedTuple):
    """Bytes at a moment of a step, beside weights, optimizer and buffers."""

    name: str
    gradients: float
    activations: float
    gathered: float

    @property
    def size(self) -> float:
        return self.gradients + self.activations + self.gathered


@dataclass(frozen=True)
class Footprint:
    """The bytes of one device, the one that needs most.

    Attributes:
        weights, gradients, optimizer: exact; between steps, with all gradients.
        buffers: of the model, whole on each device.
        peak: the moment with the most bytes.
        caches: bytes of the caches of all rows, which are part of the activations.
        workspace: of libraries, and what blocks are larger than their tensors, inside of torch's allocator.
        outside: of the driver's context and the buffers of collectives.
        spare: what an allocator cannot use.
        replicated: (name, bytes) of the weights that each of the ranks of a layer has whole, the largest first.
    """

    weights: float
    gradients: float
    optimizer: float
    buffers: float
    peak: Moment
    caches: float
    workspace: float
    outside: float
    spare: float
    replicated: tuple[tuple[str, float], ...] = field(default=(), repr=False)

    @property
    def allocated(self) -> float:
        """What ``torch.cuda.max_memory_allocated`` reports."""
        return self.weights + self.optimizer + self.buffers + self.peak.size + self.workspace

    @property
    def total(self) -> float:
        """All that the device must have."""
        return self.allocated + self.outside + self.spare


class WeightUnit(NamedTuple):
    """The weights of a unit of ``fully_shard``: this process's part, gathered; gradients, in the type of sums, and summed."""

    part: float = 0.0
    gathered: float = 0.0
    gradients: float = 0.0
    sums: float = 0.0
    reduced: float = 0.0


def unstaged_footprint(
    subject: ModelInQuestion, setting: LayoutSetting, device: Device, groups: Sequence[WeightGroup], use: RunUse
) -> Footprint:
    """The memory of a device without stages."""
    optimizer = optimizer_of(setting, groups) if subject.trains else OptimizerUse(0.0, 0.0, ())
    units = weight_units(setting, groups)
    weights = sum(unit.part for unit in units.values())
    on_host = setting.offload
    if not subject.trains:
        moments = list(_inference_moments(use, units, setting))
    else:
        moments = list(training_moments(use.segments, units, setting))
        step = 0.0 if on_host else optimizer.step
        gradients = 0.0 if on_host else sum(unit.reduced for unit in units.values())
        moments.append(Moment(OF_OPTIMIZER, gradients, step, 0.0))
    return assembled(
        subject,
        setting,
        device,
        groups,
        weights=0.0 if on_host else weights,
        gradients=sum(unit.reduced for unit in units.values()) if subject.trains and not on_host else 0.0,
        optimizer=0.0 if on_host else optimizer.state,
        peak=max(moments, key=lambda one: one.size),
        caches=0.0 if subject.trains else use.kept - use.result,
    )


def assembled(
    subject: ModelInQuestion,
    setting: LayoutSetting,
    device: Device,
    groups: Sequence[WeightGroup],
    weights: float,
    gradients: float,
    optimizer: float,
    peak: Moment,
    caches: float = 0.0,
) -> Footprint:
    """The footprint with what does not depend on the moment."""
    inputs = 16.0 * setting.rows * subject.length
    whole: list[tuple[str, float]] = []
    if setting.layout.shares > 1:
        parts = (one for group in groups for one in group.parts if one.replicated)
        whole = sorted(((one.name, _bytes(one.shape, one.width)) for one in parts), key=lambda pair: -pair[1])
    inside = weights + optimizer + subject.buffers + peak.size
    return Footprint(
        weights,
        gradients,
        optimizer,
        subject.buffers,
        peak._replace(activations=peak.activations + inputs),
        caches,
        device.workspace_mib * 2**20 + min(device.rounding * inside, device.rounding_mib * 2**20),
        (device.context_gib + device.group_gib * (setting.layout.size > 1)) * GIB,
        inside * device.spare,
        tuple(whole),
    )


def trained_weights(setting: LayoutSetting, groups: Sequence[WeightGroup]) -> Counter[TrainedWeight]:
    """The kinds of parts of weights that this process updates, each with its number."""
    own_type = getattr(torch, setting.weight_type) if setting.weight_type else None
    found: Counter[TrainedWeight] = Counter()
    for kinds, number in Counter(one.kinds for one in groups).items():
        for whole, shape, width, trained in kinds:
            if trained:
                kind = own_type or {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}.get(width, torch.bfloat16)
                found[TrainedWeight(_shard(shape, setting.layout.shards), whole, kind)] += number
    return found


def optimizer_of(setting: LayoutSetting, groups: Sequence[WeightGroup]) -> OptimizerUse:
    """The use of the optimizer on this process's parts."""
    return optimizer_use(setting.optimizer, trained_weights(setting, groups))


def _shard(shape: tuple[int, ...], ranks: int) -> tuple[int, ...]:
    """The part of ``fully_shard``'s first rank: of the first dimension, in equal parts of which the last may be shorter."""
    return (-(-shape[0] // ranks), *shape[1:]) if shape and ranks > 1 else shape


def _bytes(shape: tuple[int, ...], width: float) -> float:
    return float(prod(shape)) * width


def weight_units(setting: LayoutSetting, groups: Sequence[WeightGroup]) -> dict[str, WeightUnit]:
    """Path of a unit -> its bytes. Without data ranks nothing is gathered."""
    width = getattr(torch, setting.weight_type).itemsize if setting.weight_type else 0
    found = {"": WeightUnit()}
    for one in groups:
        unit = _unit_of(one.kinds, setting.layout.shards, width, setting.spreads)
        found[one.path] = _together(found[one.path], unit) if one.path in found else unit
    return found


def _together(first: WeightUnit, second: WeightUnit) -> WeightUnit:
    return WeightUnit(*(a + b for a, b in zip(first, second)))


@functools.lru_cache(4096)
def _unit_of(kinds: tuple[WeightKind, ...], ranks: int, own_width: int, spreads: bool) -> WeightUnit:
    """The bytes of weights of these kinds.

    Args:
        own_width: bytes of an entry in the type of weights, if products are in another; else 0.
    """
    found = WeightUnit()
    for _, shape, width, trained in kinds:
        shard = _shard(shape, ranks)
        kept, whole = _bytes(shard, own_width or width), _bytes(shard, width) * ranks
        gradients = (whole, kept * ranks, kept) if trained else (0.0, 0.0, 0.0)
        found = _together(found, WeightUnit(kept, whole if spreads else 0.0, *gradients))
    return found


def _inference_moments(use: RunUse, units: dict[str, WeightUnit], setting: LayoutSetting) -> Iterator[Moment]:
    yield from _forward_moments(use.segments, units, setting, keeps=False)
    if setting.tokens > 1:
        caches = use.kept - use.result
        layers = [one.forward.net for one in use.segments if one.path] or [0.0]
        longest = max(layers) * 2 + use.result * 2
        yield Moment("the last token", 0.0, caches + longest, 0.0)


def training_moments(
    segments: Sequence[SegmentUse], units: dict[str, WeightUnit], setting: LayoutSetting, keeps: bool = False
) -> Iterator[Moment]:
    """The moments of a forward and backward.

    Args:
        keeps: whether gathered weights and gradients stay whole, as they do until the last micro-batch of stages.
    """
    yield from _forward_moments(segments, units, setting, keeps)
    yield from _backward_moments(segments, units, setting, sum(one.forward.net for one in segments), keeps)


def _forward_moments(
    segments: Sequence[SegmentUse], units: dict[str, WeightUnit], setting: LayoutSetting, keeps: bool
) -> Iterator[Moment]:
    spreads, reshard = setting.spreads, setting.reshard and setting.layout.shards > 1 and not keeps
    root = units[""]
    held, gathered_all = 0.0, sum(unit.gathered for unit in units.values())
    before, so_far = 0.0, root.gathered
    earlier = sum(_of_earlier_forwards(units, setting))
    for one in segments:
        name = f"forward of {one.path or 'the code around the layers'}"
        unit = units.get(one.path, root) if one.path else root
        inside = unit is not root
        if not spreads:
            yield Moment(name, earlier, held + one.forward.peak, 0.0)
        elif reshard:
            own = 2 * unit.gathered + unit.part * setting.offload if inside else before
            yield Moment(name, earlier, held + one.forward.peak, root.gathered + own)
            yield Moment(f"gather of {one.path}", earlier, held, root.gathered + own + (before if inside else 0.0))
        else:
            so_far += unit.gathered if inside else 0.0
            yield Moment(name, earlier, held + one.forward.peak, (gathered_all if keeps else so_far) + unit.gathered)
        before = unit.gathered if inside else before
        held += one.forward.net


def _of_earlier_forwards(units: dict[str, WeightUnit], setting: LayoutSetting) -> tuple[float, float]:
    """Bytes of the gradients of earlier forwards of a step: whole until data ranks sum them up in the last, and summed."""
    if setting.accumulate == 1:
        return 0.0, 0.0
    if setting.sync_each_batch:
        return 0.0, 0.0 if setting.offload else sum(unit.reduced for unit in units.values())
    return sum(unit.sums for unit in units.values()), 0.0


def _backward_moments(
    segments: Sequence[SegmentUse], units: dict[str, WeightUnit], setting: LayoutSetting, held: float, keeps: bool
) -> Iterator[Moment]:
    spreads, reshard = setting.spreads, setting.reshard and setting.layout.shards > 1 and not keeps
    root = units[""]
    order = [one.path for one in segments if one.path and one.path in units]
    left = sum(unit.gathered for unit in units.values())
    of_root, in_flight = 0.0, 0.0
    earlier, reduced = _of_earlier_forwards(units, setting)
    added, whole = reduced > 0, earlier
    done: set[str] = set()
    for one in reversed(segments):
        unit = units.get(one.path, root) if one.path else root
        inside, name = unit is not root, f"backward of {one.path or 'the code around the layers'}"
        live = held + one.backward.peak
        held += one.backward.net
        if not spreads or keeps:
            yield Moment(name, whole, live, left if spreads else 0.0)
            whole += 0.0 if earlier else one.backward.gradients
            continue
        ahead = next((path for path in reversed(order) if path not in done and path != one.path), "")
        prefetched = units[ahead].gathered if ahead else 0.0
        there = root.gathered + (unit.gathered if inside else 0.0) + prefetched if reshard else left
        yield Moment(name, reduced + of_root + in_flight + earlier, live, there)
        if not inside:
            of_root += 0.0 if earlier else one.backward.gradients
            continue
        done.add(one.path)
        own, sums = one.backward.gradients, unit.sums
        if earlier:  # to which this forward's are added
            own, earlier = sums, earlier - sums
        left -= unit.gathered
        after = root.gathered + prefetched if reshard else left
        summed = reduced + of_root + own + sums + unit.reduced + earlier
        yield Moment(f"sum of the gradients of {one.path}", summed, held, after)
        if added:  # to the sums of earlier forwards, from a tensor that goes with the next
            in_flight = sums + unit.reduced
            continue
        reduced, in_flight = reduced + (0.0 if setting.offload else unit.reduced), sums
    if spreads and not keeps:
        sums = root.sums
        yield Moment("sum of the other gradients", reduced + of_root + earlier + sums + root.reduced, 0.0, 0.0)
