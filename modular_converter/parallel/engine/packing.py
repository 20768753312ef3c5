"""Messages between the main process and a rank: pickles whose tensors travel beside them, large ones in an arena.

Caches and other state of a model stay on the ranks; the caller gets an ``OnRanks`` handle, and a handle that comes
back becomes the object again.
"""

from __future__ import annotations

import functools
import io
import pickle
import types
from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.engine.shared_memory import Arena, aligned
from modular_converter.parallel.errors import PlanError


# Up to this many bytes a tensor travels in the message itself: a pipe carries them faster than two mappings agree.
INLINE_BYTES = 1 << 15
MAILBOX_BYTES = 256 << 20
COPY = "__deepcopy__"


class OnRanks:
    """Something that lives on the ranks, such as a key/value cache. Give it back to the model as you got it.

    Its methods and attributes are those on the ranks, and the first rank's answer comes back. ``copy.deepcopy`` copies
    it there. What is a rank's own share, such as the keys of a cache's layer, raises ``ApplyError``.
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
        raise PlanError(f"{self!r}: {name} cannot be set from here; call its methods")

    def __len__(self) -> int:
        return int(self._call(self._number, "__len__", (), {}))

    def __bool__(self) -> bool:
        return "__len__" not in self._names or len(self) > 0

    def __deepcopy__(self, memo: Any) -> Any:
        return self._call(self._number, COPY, (), {})

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PlanError(f"{self!r} cannot be pickled or copied here; copy.deepcopy copies it on the ranks")

    def __repr__(self) -> str:
        return f"<{self._kind} on the ranks>"


def handle_for(kind: type[Any], number: int, names: dict[str, bool], call: Callable[..., Any]) -> OnRanks:
    """A handle that is an instance of what it stands for, so that ``isinstance`` holds.

    Args:
        names: of ``names_of``.
        call: runs ``(number, name, args, kwargs)`` on the ranks; reads an attribute if ``args`` is None.
    """
    made: OnRanks = object.__new__(_handle_class(kind))  # type: ignore[arg-type]
    vars(made).update(_number=number, _kind=kind.__name__, _names=names, _call=call)
    return made


def stand_in(value: Any, number: int, call: Callable[..., Any]) -> None:
    """Make the caller's own object the handle of what has been sent to the ranks; its content here goes."""
    kind, names = type(value), names_of(type(value), own_names(value))
    value.__class__ = _handle_class(kind)  # type: ignore[arg-type]
    vars(value).clear()
    vars(value).update(_number=number, _kind=kind.__name__, _names=names, _call=call)


@functools.lru_cache(maxsize=256)
def _handle_class(kind: type[Any]) -> type[Any]:
    body = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return types.new_class(kind.__name__, (OnRanks, kind), exec_body=lambda scope: scope.update(body))


def own_names(value: Any) -> str:
    """The public attributes that an object has besides those of its class, with spaces between.

    One text and not a list: pickle asks Python about each object in a message, 70 us for the names of a cache.
    """
    return " ".join(name for name in vars(value) if not name.startswith("_"))


def names_of(kind: type[Any], own: str) -> dict[str, bool]:
    """The public attributes of an object, with whether each is a method; and ``__len__``."""
    return {**dict.fromkeys(own.split(), False), **_methods(kind)}  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _methods(kind: type[Any]) -> dict[str, bool]:
    shown = [name for name in dir(kind) if not name.startswith("_") or name == "__len__"]
    return {name: callable(getattr(kind, name, None)) for name in shown}


class Mailbox:
    """GPU memory of a rank that the main process sees, for results; allocated and lent when it is first used.

    Lending each result by itself costs the opening and closing of a mapping, about a millisecond a call.
    """

    def __init__(self, size: int = MAILBOX_BYTES) -> None:
        self.size = size
        self.buffer: torch.Tensor | None = None
        self.usable = True

    def put(self, value: torch.Tensor, offset: int) -> Any:
        """What tells the main process where a copy of the tensor lies; None if it does not fit or nothing is lent."""
        length = value.numel() * value.element_size()
        if not self.usable or offset + length > self.size or not length:
            return None
        handle = None
        if self.buffer is None:
            self.buffer = torch.empty(self.size, dtype=torch.uint8, device=value.device)
            handle = _shared(self.buffer)
            self.usable = handle is not None
            if not self.usable:
                return None
        self.buffer[offset : offset + length].view(value.dtype).view(value.shape).copy_(value)
        return ("mail", value.dtype, tuple(value.shape), offset, handle)


class _Packer(pickle.Pickler):
    def __init__(self, file: Any, arena: Arena, held: dict[int, int], mailbox: Mailbox | None) -> None:
        super().__init__(file, protocol=5)
        self.arena, self.held, self.mailbox, self.end, self.mailed = arena, held, mailbox, 0, 0
        self.sent: dict[int, int] = {}
        self.kept: list[torch.Tensor] = []  # alive until the end, so that no identity is used twice

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            # Pickle keeps no memo of these, and a `ModelOutput` names each of its tensors three times.
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
            raise pickle.PicklingError(
                f"a module ({type(value).__name__}) cannot travel between processes; pass tensors and settings"
            )
        return None

    def _tensor(self, value: torch.Tensor) -> Any:
        value = value.detach()
        if self.mailbox is not None and value.is_cuda:
            found = self.mailbox.put(value, self.mailed)
            if found is not None:
                self.mailed = aligned(self.mailed + value.numel() * value.element_size())
                return found
            if (handle := _shared(value)) is not None:
                return handle
        if type(value) is not torch.Tensor:
            value = value.as_subclass(torch.Tensor)
        if value.layout != torch.strided or value.is_quantized:
            raise pickle.PicklingError(f"a tensor of layout {value.layout} cannot travel; make it dense")
        size = value.numel() * value.element_size()
        if size <= INLINE_BYTES:
            return ("inline", value.dtype, tuple(value.shape), bytes(_flat_bytes(value.cpu().contiguous()).numpy()))
        offset = aligned(self.end)
        self.end = offset + size
        self.arena.reserve(self.end)
        write(self.arena, offset, value)
        return ("arena", value.dtype, tuple(value.shape), offset)


class _Unpacker(pickle.Unpickler):
    def __init__(
        self, file: Any, arena: Arena, device: Any, resolve: Callable[[Any], Any], mail: dict[str, torch.Tensor]
    ) -> None:
        super().__init__(file)
        self.arena, self.device, self.resolve, self.mail = arena, device, resolve, mail
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
            return made.view(shape).to(self.device)
        if kind == "arena":
            _, dtype, shape, offset = pid
            found = read(self.arena, offset, dtype, shape)
            return found.clone() if self.device.type == "cpu" else found.to(self.device)
        if kind == "mail":
            return self._mailed(*pid[1:]).to(self.device)
        shared: torch.Tensor = pid[1](*pid[2])
        return shared.to(self.device)

    def _mailed(self, dtype: torch.dtype, shape: tuple[int, ...], offset: int, handle: Any) -> torch.Tensor:
        if handle is not None:
            self.mail["buffer"] = handle[1](*handle[2])
        length = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
        return self.mail["buffer"][offset : offset + length].view(dtype).view(shape).clone()


def pack(value: Any, arena: Arena, held: dict[int, int] | None = None, mailbox: Mailbox | None = None) -> bytes:
    """A value as bytes.

    Args:
        arena: where tensors above ``INLINE_BYTES`` are written, from its start; the receiver must be done with the
            last message.
        held: identity of objects that stay here -> their number.
        mailbox: where CUDA tensors go, for a receiver that wants them on its device; what is too large for it is lent.

    Raises:
        Exception: what cannot be pickled, as ``pickle`` says it.
    """
    file = io.BytesIO()
    _Packer(file, arena, held or {}, mailbox).dump(value)
    return file.getvalue()


def unpack(
    data: bytes,
    arena: Arena,
    device: torch.device,
    resolve: Callable[[Any], Any],
    mail: dict[str, torch.Tensor] | None = None,
) -> Any:
    """The inverse of ``pack``; tensors are copied to ``device``.

    Args:
        resolve: from ``("held", number)`` or ``("handle", number, class, own names)`` to the object.
        mail: the sender's mailbox, kept by the receiver from the first message on.
    """
    return _Unpacker(io.BytesIO(data), arena, device, resolve, {} if mail is None else mail).load()


def _shared(value: torch.Tensor) -> Any:
    """A handle of GPU memory for another process; None where the system does not lend any."""
    from torch.multiprocessing.reductions import reduce_tensor

    try:
        return ("shared", *reduce_tensor(value))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return None


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def write(arena: Arena, offset: int, tensor: torch.Tensor) -> None:
    """Copy a tensor of any layout and device into reserved bytes."""
    read(arena, offset, tensor.dtype, tuple(tensor.shape)).copy_(tensor)


def read(arena: Arena, offset: int, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor that lies in an arena, not copied."""
    count = 1
    for length in shape:
        count *= length
    if not count:
        return torch.empty(shape, dtype=dtype)
    size = count * torch.empty((), dtype=dtype).element_size()
    return torch.frombuffer(arena.view(offset, size), dtype=torch.uint8).view(dtype).view(shape)


def state_bytes(state: torch.Tensor) -> bytes:
    """A random state for a message: a tensor would be moved to the receiver's device and back."""
    found: bytes = state.cpu().numpy().tobytes()
    return found


def state_tensor(data: bytes) -> torch.Tensor:
    """The inverse of ``state_bytes``."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
