"""The bytes of an optimizer's state and of its step, from torch's own optimizer on weights without data."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.advice.recording import Kernel, OperationCounter
from modular_converter.parallel.choice.skeleton import META, Guesses
from modular_converter.parallel.errors import AdviceError


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
_IN_ONE_PASS = ("adamw-fused", "adamw8bit")
_ONE_BY_ONE = ("adafactor",)


def optimizer_use(name: str, kinds: Mapping[TrainedWeight, int]) -> OptimizerUse:
    """The use of an optimizer, from a step on the meta device for each kind of weight.

    Args:
        kinds: kind of weight -> the number of weights of that kind.

    Raises ``AdviceError`` for an unknown name, or a library that is not installed.
    """
    if name not in OPTIMIZERS:
        raise AdviceError(f"unknown optimizer {name!r}; known: {', '.join(OPTIMIZERS)}")
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
