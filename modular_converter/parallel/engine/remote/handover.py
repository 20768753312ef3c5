"""Weights from the main process to the ranks and back, a few megabytes at a time through one shared area.

A model is taken apart into a skeleton (its modules, pickled without tensors) and its tensors. A rank puts the skeleton
together on the meta device, resolves the plan, and copies of each tensor only its own share.
"""

from __future__ import annotations

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.shares import stretches


# Two slots of this size are in flight: small beside any model worth sharding, large beside the cost of a message.
SLOT_BYTES = 32 << 20


@dataclass(frozen=True)
class Item:
    """One tensor of a model.

    Attributes:
        name: of a parameter or buffer; ``""`` for a tensor that is neither.
        kept: the type that it has on the ranks.
        parameter: whether modules register it as a parameter, so that a plan can shard it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    kept: torch.dtype
    parameter: bool
    gradient: bool

    @property
    def row_bytes(self) -> int:
        """Bytes of one entry of the first dimension."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def rows(self) -> int:
        return self.shape[0] if self.shape else 1


@dataclass(frozen=True)
class Skeleton:
    """What travels ahead of the weights; picklable."""

    pickled: bytes
    items: tuple[Item, ...]


_INSTALLED = "_output_capturing_hooks_installed"


class _Dismantler(pickle.Pickler):
    def __init__(self, file: Any, model: torch.nn.Module) -> None:
        super().__init__(file, protocol=5)
        self.names: dict[int, tuple[str, bool]] = {}
        for name, buffer in model.named_buffers():
            self.names[id(buffer)] = (name, False)
        for name, parameter in model.named_parameters():
            self.names[id(parameter)] = (name, True)
        self.numbers: dict[int, int] = {}
        self.tensors: list[torch.Tensor] = []

    def reducer_override(self, value: Any) -> Any:
        """Modules that pickle refuses or that hold closures of the library's, see ``_restore``; handles of such hooks."""
        if isinstance(value, RemovableHandle):  # it holds all hooks of its module
            return RemovableHandle, (OrderedDict(),)
        if not isinstance(value, torch.nn.Module):
            return NotImplemented
        parametrized = parametrize.is_parametrized(value)
        captured = any(map(_captures, value._forward_hooks.values())) or _INSTALLED in vars(value)
        if not parametrized and not captured:
            return NotImplemented
        own = type(value).__mro__[1] if parametrized else type(value)
        state = {**vars(value)}
        kept = {key: hook for key, hook in value._forward_hooks.items() if not _captures(hook)}
        state["_forward_hooks"] = type(value._forward_hooks)(kept)
        state.pop(_INSTALLED, None)
        if parametrized:
            state["_load_state_dict_pre_hooks"] = type(value._load_state_dict_pre_hooks)()  # for old checkpoints
        return (_blank, (own,), state, None, None, _restore)

    def persistent_id(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return None
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self.numbers[id(value)]


def _blank(kind: type[torch.nn.Module]) -> torch.nn.Module:
    return kind.__new__(kind)


def _restore(module: torch.nn.Module, state: dict[str, Any]) -> None:
    """The state of a module, without the hooks with which the library captures outputs: it installs them anew.

    A parametrized module (weight norm) gets its class of its own again, which torch makes and pickle cannot find.
    """
    module.__dict__.update(state)
    parametrizations = module._modules.get("parametrizations")
    if parametrizations is None:
        return
    parametrize._inject_new_class(module)
    for name in cast(torch.nn.ModuleDict, parametrizations):
        parametrize._inject_property(module, name)


def _captures(hook: Any) -> bool:
    """Whether a hook is a closure of the library's, which no pickle can hold: to capture outputs, to train."""
    own = str(getattr(hook, "__module__", "")).startswith("transformers.")
    return own and "<locals>" in str(getattr(hook, "__qualname__", ""))


def kept_types(model: Any, dtype: torch.dtype | None) -> Callable[[str, torch.Tensor], torch.dtype]:
    """From a tensor of the model to its type on the devices, as ``from_pretrained(dtype=...)`` would choose.

    Weights that the model keeps in float32, buffers that are not saved, and integers stay as they are.
    """
    saved = set(model.state_dict()) if dtype is not None else set()
    exact = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if dtype == torch.float16:
        exact |= set(getattr(model, "_keep_in_fp32_modules", None) or ())

    def kept(name: str, tensor: torch.Tensor) -> torch.dtype:
        if dtype is None or not tensor.is_floating_point() or name not in saved:
            return tensor.dtype
        return torch.float32 if any(part in name for part in exact) else dtype

    return kept


def dismantle(
    model: torch.nn.Module, kept: Callable[[str, torch.Tensor], torch.dtype]
) -> tuple[Skeleton, list[torch.Tensor]]:
    """A model as its skeleton and its tensors; the model stays as it is.

    Args:
        kept: from name and tensor to the type that it shall have on the ranks.

    Raises:
        ApplyError: something in the model cannot be pickled; it is named.
    """
    file = io.BytesIO()
    dismantler = _Dismantler(file, model)
    try:
        dismantler.dump(model)
    except Exception as error:  # pickle raises what the object's own code raises
        raise ApplyError(
            f"the model cannot be sent to other processes: {type(error).__name__}: {error}; "
            "remove the attribute or hook that it names, or define its function at the top of a module"
        ) from error
    items = []
    for tensor in dismantler.tensors:
        name, parameter = dismantler.names.get(id(tensor), ("", False))
        items.append(
            Item(name, tuple(tensor.shape), tensor.dtype, kept(name, tensor), parameter, tensor.requires_grad)
        )
    return Skeleton(file.getvalue(), tuple(items)), dismantler.tensors


class _Assembler(pickle.Unpickler):
    def __init__(self, skeleton: Skeleton, device: torch.device) -> None:
        super().__init__(io.BytesIO(skeleton.pickled))
        self.items, self.device = skeleton.items, device
        self.made: dict[int, torch.Tensor] = {}

    def persistent_load(self, number: Any) -> torch.Tensor:
        if number not in self.made:
            item = self.items[number]
            if item.parameter:
                empty = torch.empty(item.shape, dtype=item.kept, device="meta")
                self.made[number] = torch.nn.Parameter(empty, requires_grad=item.gradient)
            else:
                self.made[number] = torch.empty(item.shape, dtype=item.kept, device=self.device)
        return self.made[number]


def assemble(skeleton: Skeleton, device: torch.device) -> tuple[torch.nn.Module, dict[int, torch.Tensor]]:
    """The model with parameters on the meta device and all other tensors empty on ``device``; tensors by number."""
    assembler = _Assembler(skeleton, device)
    model: torch.nn.Module = assembler.load()
    _announce(model)
    return model, assembler.made


def _announce(model: torch.nn.Module) -> None:
    """Tell the library which outputs the model's classes can record, as their constructors do: none has run here."""
    try:
        from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY
    except ImportError:
        return
    for module in model.modules():
        if hasattr(module, "_can_record_outputs"):
            dict.setdefault(_CAN_RECORD_REGISTRY, str(type(module)), module._can_record_outputs)


@dataclass(frozen=True)
class Span:
    """Rows ``first`` to ``last`` of a tensor, at ``offset`` in the shared area."""

    number: int
    first: int
    last: int
    offset: int


def parcels(items: tuple[Item, ...], slot: int = SLOT_BYTES) -> Iterator[list[Span]]:
    """All rows of all tensors, in parcels that fit a slot (one row alone may be larger)."""
    parcel: list[Span] = []
    used = 0
    for number, item in enumerate(items):
        row, first = max(item.row_bytes, 1), 0
        while first < item.rows:
            room = (slot - used) // row
            if room < 1 and parcel:
                yield parcel
                parcel, used = [], 0
                continue
            last = min(item.rows, first + max(room, 1))
            parcel.append(Span(number, first, last, used))
            used += -(-(last - first) * row // 64) * 64
            first = last
    if parcel:
        yield parcel


def slot_bytes(items: tuple[Item, ...], slot: int = SLOT_BYTES) -> int:
    """How large a slot must be, so that each row fits; a small share of all tensors together."""
    total = sum(-(-item.row_bytes * item.rows // 64) * 64 for item in items)
    return max(64, min(slot, total // 40), max((item.row_bytes for item in items), default=0))


def moves_of(piece: Piece | None, shape: tuple[int, ...], rank: int, size: int) -> list[tuple[int, int, int]]:
    """From a whole tensor to a rank's share, for ``copy_rows``; none for a tensor that stays whole."""
    return [] if piece is None or piece.dim < 0 else stretches(shape[piece.dim], piece.parts, rank, size)


def copy_rows(
    chunk: torch.Tensor, first: int, target: torch.Tensor, dim: int, moves: list[tuple[int, int, int]]
) -> None:
    """Copy rows of one tensor into another.

    Args:
        chunk: rows from ``first`` on of the source.
        dim: the dimension that ``moves`` are about.
        moves: ``(start in the source, start in the target, length)``; none copies the rows as they are.
    """
    rows = chunk.shape[0]
    if not moves:
        target[first : first + rows].copy_(chunk)
    for source, goal, length in moves:
        if dim:
            target[first : first + rows].narrow(dim, goal, length).copy_(chunk.narrow(dim, source, length))
            continue
        low, high = max(source, first), min(source + length, first + rows)
        if low < high:
            target[goal + low - source : goal + high - source].copy_(chunk[low - first : high - first])
