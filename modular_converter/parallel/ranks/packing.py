"""Messages between the main process and a rank: pickles, with large tensors beside them in shared memory.

Caches and other state of a model stay on the ranks. The caller gets an ``OnRanks`` handle, which becomes the object again
in a message to the ranks. Of results on GPUs the main process maps a part of the rank's memory, and reads it when the
rank is done.
"""

from __future__ import annotations

import functools
import io
import math
import pickle
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_tensor

from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.modules import bytes_of
from modular_converter.parallel.ranks.protocol import Arena, aligned


RESULT_BYTES = 256 << 20


class ResultBuffer:
    """GPU memory of a rank for results, mapped by the main process; allocated and lent at its first use.

    A mapping for each result would take about a millisecond a call.
    """

    def __init__(self, size: int = RESULT_BYTES) -> None:
        self.size = size
        self.buffer: torch.Tensor | None = None
        self.usable = True

    def write(self, value: torch.Tensor, offset: int) -> Any:
        """Copy a tensor to the buffer. Returns its place; None if it does not fit or the memory cannot be lent."""
        length = value.numel() * value.element_size()
        if not self.usable or offset + length > self.size or not length:
            return None
        handle = None
        if self.buffer is None:
            self.buffer = torch.empty(self.size, dtype=torch.uint8, device=value.device)
            handle = lent(self.buffer)
            self.usable = handle is not None
            if not self.usable:
                return None
        self.buffer[offset : offset + length].view(value.dtype).view(value.shape).copy_(value)
        return ("mail", value.dtype, tuple(value.shape), offset, handle)


class ResultReader:
    """The receiver's side of a result buffer. Tensors are expected first, and copied when they are complete."""

    def __init__(self) -> None:
        self.buffer: torch.Tensor | None = None
        self.expected: list[tuple[torch.Tensor, torch.Tensor]] = []

    def expect(self, place: torch.Tensor, device: Any) -> torch.Tensor:
        """A new tensor of the receiver for a tensor in the sender's memory; ``read`` fills it."""
        found = torch.empty(place.shape, dtype=place.dtype, device=device)
        self.expected.append((found, place))
        return found

    def look_up(
        self, device: Any, dtype: torch.dtype, shape: tuple[int, ...], offset: int, handle: Any
    ) -> torch.Tensor:
        """A new tensor for a place from ``ResultBuffer.write``; ``read`` fills it."""
        if handle is not None:
            self.buffer = handle[1](*handle[2])
        assert self.buffer is not None
        length = math.prod(shape) * dtype.itemsize
        return self.expect(self.buffer[offset : offset + length].view(dtype).view(shape), device)

    def read(self) -> None:
        """Copy all expected tensors, which must be complete."""
        for found, place in self.expected:
            found.copy_(place)
        self.expected.clear()

    def close(self) -> None:
        """Unmap the sender's memory."""
        self.buffer = None
        self.expected.clear()


def lent(value: torch.Tensor) -> Any:
    """A handle with which another process can map GPU memory; None if the system does not allow it."""
    try:
        return ("shared", *reduce_tensor(value))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None


# Up to this many bytes a tensor is in the message itself: the pipe is faster than shared memory then.
INLINE_BYTES = 1 << 15
COPY = "__deepcopy__"


class OnRanks:
    """A handle of an object that lives on the ranks, such as a key/value cache. Pass it to the model's next call.

    Its methods and attributes are those of the object; the first rank's result is returned. ``copy.deepcopy`` copies the
    object on the ranks. Reading a rank's own share, such as the keys of a cache's layer, raises ``ApplyError``.
    """

    _number: int
    _kind: str
    _names: dict[str, bool]
    _call: Callable[..., Any]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        if name not in self._names:
            raise AttributeError(f"{self._kind!r} on the ranks has no attribute {name!r}")
        if self._names[name]:
            return lambda *args, **kwargs: self._call(self._number, name, args, kwargs)
        return self._call(self._number, name, None, None)

    def __setattr__(self, name: str, value: Any) -> None:
        raise PlanError(f"{self!r}: {name} cannot be set from this process; call its methods")

    def __len__(self) -> int:
        return int(self._call(self._number, "__len__", (), {}))

    def __bool__(self) -> bool:
        return "__len__" not in self._names or len(self) > 0

    def __deepcopy__(self, memo: Any) -> Any:
        return self._call(self._number, COPY, (), {})

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PlanError(f"{self!r} cannot be pickled; copy.deepcopy copies it on the ranks")

    def __repr__(self) -> str:
        return f"<{self._kind} on the ranks>"


class OnRanksParts(OnRanks):
    """A handle of a tuple, list or dict of shares."""

    def __getitem__(self, key: Any) -> Any:
        raise ApplyError(f"{self!r}: each rank holds its own share; pass this handle to the next call")

    def __iter__(self) -> Any:
        return self[0]


def handle_for(kind: type[Any], number: int, names: dict[str, bool], call: Callable[..., Any]) -> OnRanks:
    """A handle that is an instance of its object's class, except for tuples, lists and dicts.

    Args:
        names: the result of ``public_names``.
        call: runs the method ``(number, name, args, kwargs)`` on the ranks; reads the attribute if ``args`` is None.
    """
    made: OnRanks = object.__new__(_handle_class(kind))  # type: ignore[arg-type]
    vars(made).update(_number=number, _kind=kind.__name__, _names=names, _call=call)
    return made


def stand_in(value: Any, number: int, call: Callable[..., Any]) -> None:
    """Turn the caller's object, which was sent to the ranks, into its handle, without its content."""
    kind, names = type(value), public_names(type(value), own_names(value))
    value.__class__ = _handle_class(kind)  # type: ignore[arg-type]
    vars(value).clear()
    vars(value).update(_number=number, _kind=kind.__name__, _names=names, _call=call)


@functools.lru_cache(maxsize=256)
def _handle_class(kind: type[Any]) -> type[Any]:
    body = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    bases = (OnRanksParts,) if issubclass(kind, (tuple, list, dict)) else (OnRanks, kind)
    return types.new_class(kind.__name__, bases, exec_body=lambda scope: scope.update(body))


def own_names(value: Any) -> str:
    """The names of an object's own public attributes, joined with spaces.

    A list would be slower: pickle asks Python about each object in a message, 70 us for the names of a cache.
    """
    return " ".join(name for name in getattr(value, "__dict__", ()) if not name.startswith("_"))


def public_names(kind: type[Any], own: str) -> dict[str, bool]:
    """Public attribute of an object, or ``__len__`` -> whether it is a method."""
    return {**dict.fromkeys(own.split(), False), **_methods(kind)}  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _methods(kind: type[Any]) -> dict[str, bool]:
    shown = [name for name in dir(kind) if not name.startswith("_") or name == "__len__"]
    return {name: callable(getattr(kind, name, None)) for name in shown}


class _Packer(pickle.Pickler):
    def __init__(self, file: Any, arena: Arena, held: dict[int, int], results: ResultBuffer | None) -> None:
        super().__init__(file, protocol=5)
        self.arena, self.held, self.results, self.end, self.written = arena, held, results, 0, 0
        self.sent: dict[int, int] = {}
        self.kept: list[torch.Tensor] = []  # alive until the end, so that identities are unique

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            # Pickle has no memo of persistent ids, and a `ModelOutput` refers to each tensor three times.
            number = self.sent.get(id(value))
            if number is not None:
                return ("again", number)
            self.sent[id(value)] = len(self.kept)
            self.kept.append(value)
            return ("tensor", self._tensor(value))
        if isinstance(value, OnRanks):
            return ("held", value._number)
        if id(value) in self.held:
            return ("handle", self.held[id(value)], type(value), own_names(value))
        if isinstance(value, torch.nn.Module):
            raise PlanError(
                f"a module ({type(value).__name__}) cannot travel between processes; pass tensors and settings, or another "
                "model that lies on the same ranks: parallelize(model, session=ranks), parallelize(other, session=ranks)"
            )
        return None

    def _tensor(self, value: torch.Tensor) -> Any:
        value = value.detach()
        if self.results is not None and value.is_cuda:
            found = self.results.write(value, self.written)
            if found is not None:
                self.written = aligned(self.written + value.numel() * value.element_size())
                return found
            if (handle := lent(value)) is not None:
                return handle
        if type(value) is not torch.Tensor:
            value = value.as_subclass(torch.Tensor)
        if value.layout != torch.strided or value.is_quantized:
            raise PlanError(f"a tensor of layout {value.layout} cannot travel; make it dense")
        size = value.numel() * value.element_size()
        if size <= INLINE_BYTES:
            return ("inline", value.dtype, tuple(value.shape), bytes_of(value))
        offset = aligned(self.end)
        self.end = offset + size
        self.arena.reserve(self.end)
        write_tensor(self.arena, offset, value)
        return ("arena", value.dtype, tuple(value.shape), offset)


class _Unpacker(pickle.Unpickler):
    def __init__(
        self, file: Any, arena: Arena, device: Any, resolve: Callable[[Any], Any], reader: ResultReader
    ) -> None:
        super().__init__(file)
        self.arena, self.device, self.resolve, self.reader = arena, device, resolve, reader
        self.made: list[torch.Tensor] = []

    def persistent_load(self, pid: Any) -> Any:
        if pid[0] == "again":
            return self.made[pid[1]]
        if pid[0] != "tensor":
            return self.resolve(pid)
        self.made.append(self._tensor(pid[1]))
        return self.made[-1]

    def _tensor(self, pid: Any) -> torch.Tensor:
        kind = pid[0]
        if kind == "inline":
            _, dtype, shape, data = pid
            made = (
                torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype) if data else torch.empty(0).to(dtype)
            )
            # Without a wait: the driver has copied pageable memory before the call returns.
            return made.view(shape).to(self.device, non_blocking=True)
        if kind == "arena":
            _, dtype, shape, offset = pid
            found = read_tensor(self.arena, offset, dtype, shape)
            return found.clone() if self.device.type == "cpu" else found.to(self.device)
        if kind == "mail":
            return self.reader.look_up(self.device, *pid[1:])
        shared: torch.Tensor = pid[1](*pid[2])
        return shared if shared.device == self.device else self.reader.expect(shared, self.device)


def pack(value: Any, arena: Arena, held: dict[int, int] | None = None, results: ResultBuffer | None = None) -> bytes:
    """A value as bytes.

    Args:
        arena: for tensors above ``INLINE_BYTES``, from its start; the receiver must have read the last message.
        held: identity of an object that stays here -> its number.
        results: for CUDA tensors, if the receiver wants them on its device; larger tensors are lent.

    Raises the errors of ``pickle``.
    """
    file = io.BytesIO()
    _Packer(file, arena, held or {}, results).dump(value)
    return file.getvalue()


def unpack(
    data: bytes, arena: Arena, device: torch.device, resolve: Callable[[Any], Any], reader: ResultReader | None = None
) -> Any:
    """The inverse of ``pack``; tensors are copied to ``device``, those in a result buffer when they are read.

    Args:
        resolve: ``("held", number)`` or ``("handle", number, class, own names)`` -> the object.
        reader: the receiver's side of the sender's result buffer.
    """
    return _Unpacker(io.BytesIO(data), arena, device, resolve, reader or ResultReader()).load()


def write_tensor(arena: Arena, offset: int, tensor: torch.Tensor) -> None:
    """Copy a tensor of any layout and device into reserved bytes."""
    read_tensor(arena, offset, tensor.dtype, tuple(tensor.shape)).copy_(tensor)


def read_tensor(arena: Arena, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor in an arena, not copied."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(arena.view(offset, size), dtype=torch.uint8).view(dtype).view(shape)
