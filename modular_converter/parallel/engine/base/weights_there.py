"""Tensors of the caller's model whose numbers are on the ranks: shapes are known here, numbers are fetched when code reads them.

So every method, property and line of the caller's own code that reads a weight sees the whole weight. Writing is refused,
because it would change a copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy
import torch

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.torch_private import DisableTorchFunctionSubclass, make_subclass


Fetch = Callable[[], torch.Tensor]
# Answered without numbers, as properties are that are no tensors. All other functions are given the whole tensor.
_FACTS = frozenset(
    [
        "size",
        "stride",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "element_size",
        "is_floating_point",
        "is_complex",
        "is_signed",
        "is_contiguous",
        "storage_offset",
        "is_inference",
        "requires_grad_",
        "__len__",
        "__hash__",
        "__dir__",
    ]
)
_IN_PLACE = frozenset(
    f"__i{name}__"
    for name in ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"]
)
_SHARES_MEMORY = ("numpy", "__array__", "__dlpack__", "untyped_storage", "storage")
_UNWRITTEN = (
    "{name} is on the ranks, and writing to it here would change nothing there; take the model back with .cpu(), change it, "
    "and parallelize it again"
)


_NO_ADDRESS = (
    "{name} is on the ranks, and has no address here: take `is` to compare weights, and weight.clone() or state_dict() for "
    "their numbers"
)
NO_GRADIENTS = (
    "a model on ranks of parallelize runs without gradients; to train, start your script with torchrun and call "
    "parallelize there"
)


class _NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, marker: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise PlanError(NO_GRADIENTS)


def refuse_backward(tensor: torch.Tensor) -> torch.Tensor:
    """Let a tensor, in place, require a gradient as on one device: a backward that reaches it raises ``PlanError``.

    Without it, a loss that has other terms, too, would give gradients of those alone.
    """
    if not torch.is_grad_enabled() or tensor.is_inference() or not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor
    found: torch.Tensor = _NoGradient.apply(tensor, torch.empty(0, requires_grad=True))  # type: ignore[no-untyped-call]
    return found


class _There:
    """Mixin: a tensor without numbers, which are fetched when a function needs them."""

    requires_grad: bool
    _fetch: Fetch
    _place: torch.device
    _label: str
    _unwritten: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        with DisableTorchFunctionSubclass():
            if name in ("__get__", "__set__", "__delete__") and isinstance(args[0], _There):
                return _property(func, name, args)
            if name in _FACTS:
                return func(*args, **kwargs)
            if name == "detach":
                return alias(args[0])
            if name.startswith("register_") or func in (
                torch.autograd.grad,
                torch.autograd.backward,
            ):  # hooks on gradients
                raise PlanError(NO_GRADIENTS)
            if name == "data_ptr":
                raise PlanError(_NO_ADDRESS.format(name=args[0]._label))
            for target in written_tensors(name, args, kwargs):
                if isinstance(target, _There):
                    raise PlanError(target._unwritten.format(name=target._label))
        return _read_only(func, name, args, kwargs)

    def set_(self, *source: Any, **more: Any) -> Any:
        """Refused, as other writes are; torch calls no ``__torch_function__`` for it."""
        raise PlanError(self._unwritten.format(name=self._label))

    def __deepcopy__(self, memo: Any) -> Any:
        copied = self._fetch().clone()
        return torch.nn.Parameter(copied, requires_grad=False) if isinstance(self, torch.nn.Parameter) else copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._fetch().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


class WeightThere(_There, torch.Tensor):
    """A parameter whose whole tensor is shared out over the ranks, or an alias of one.

    No subclass of ``Parameter``: a tensor of another class is one by its ``_is_param``, so that ``Parameter(weight)`` and
    ``weight.detach()`` are of one class, as torch demands.
    """

    def __repr__(self, *, tensor_contents: Any = None) -> Any:  # type: ignore[override]
        found = self._fetch()
        return repr(torch.nn.Parameter(found, self.requires_grad) if isinstance(self, torch.nn.Parameter) else found)


def weight_there(
    empty: torch.Tensor, name: str, gradient: bool, place: torch.device, fetch: Fetch, unwritten: str = _UNWRITTEN
) -> torch.nn.Parameter:
    """A parameter for the caller's model.

    Args:
        empty: on the meta device, of the whole weight's shape and type.
        place: the device on which its numbers appear.
        fetch: gathers the whole tensor.
        unwritten: of the error for code that writes to it; ``{name}`` in it becomes the weight's name.
    """
    made: Any = make_subclass(WeightThere, empty, gradient)
    made._is_param = True
    made._label, made._place, made._fetch, made._unwritten = name, place, fetch, unwritten
    return made  # type: ignore[no-any-return]


class StoredThere(_There, torch.Tensor):
    """A tensor that a call has stored on a module: its shape, too, is known only when it is fetched."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__set__", "__delete__") or any(map(is_there, written_tensors(name, args, kwargs or {}))):
            label = next((one._label for one in args if isinstance(one, _There)), "this tensor")
            raise PlanError(f"{label} was stored by a call on the ranks; to change it, set it to a new tensor")
        if name in ("__hash__", "__dir__"):
            with DisableTorchFunctionSubclass():
                return func(*args)
        return _read_only(func, name, args, kwargs or {})


def stored_there(label: str, fetch: Fetch) -> torch.Tensor:
    """A tensor for the caller's model that ``fetch`` brings once, when code reads it."""
    made: Any = make_subclass(StoredThere, torch.empty(0, device="meta"))
    found: list[torch.Tensor] = []

    def once() -> torch.Tensor:
        if not found:
            found.append(fetch())
        return found[0]

    made._label, made._place, made._fetch = label, torch.device("cpu"), once
    return made  # type: ignore[no-any-return]


def alias(source: Any) -> torch.Tensor:
    made: Any = make_subclass(WeightThere, torch.empty(source.shape, dtype=source.dtype, device="meta"))
    made._label, made._place, made._fetch = source._label, source._place, source._fetch
    made._unwritten = source._unwritten
    return made  # type: ignore[no-any-return]


class _Copy(torch.Tensor):
    """A view of a weight's fetched copy; refuses to be written_tensors, since the weight would not change."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("__set__", "__delete__") or any(
            isinstance(one, _Copy) for one in written_tensors(name, args, kwargs)
        ):
            raise PlanError(_UNWRITTEN.format(name="this weight"))
        return _read_only(func, name, args, kwargs)


class _Array(numpy.ndarray[Any, Any]):
    """A fetched copy for numpy; refuses to be written, since the weight would not change."""

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(one, _Array) for one in kwargs.get("out", ())):
            self._refused()
        plain = [one.view(numpy.ndarray) if isinstance(one, _Array) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def _refused(self, *args: Any, **kwargs: Any) -> Any:
        raise PlanError(_UNWRITTEN.format(name="this weight"))

    __setitem__ = fill = sort = partition = put = resize = byteswap = setfield = _refused


class _StorageThere:
    """The memory of a fetched copy, for code that reads it: writing is refused, since the weight would not change."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        if name == "data_ptr":
            raise PlanError(_NO_ADDRESS.format(name="this weight"))
        if name.endswith("_") and not name.endswith("__"):
            raise PlanError(_UNWRITTEN.format(name="this weight"))
        return getattr(self._storage, name)

    def __getitem__(self, index: Any) -> Any:
        return self._storage[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        raise PlanError(_UNWRITTEN.format(name="this weight"))

    def __len__(self) -> int:
        return len(self._storage)


def _property(func: Any, name: str, args: Any) -> Any:
    owner = args[0]
    attribute = getattr(getattr(func, "__self__", None), "__name__", "")
    if name != "__get__":
        if attribute in ("grad", "requires_grad"):
            return func(*args)
        raise PlanError(owner._unwritten.format(name=owner._label))
    if attribute == "data":
        return alias(owner)
    if attribute == "device":
        return owner._place
    if attribute in ("is_cpu", "is_cuda", "is_meta"):  # functions of torch.nn.init do nothing to tensors without data
        return attribute == f"is_{owner._place.type}"
    with contextlib.suppress(AttributeError, RuntimeError):
        found = func(*args)
        if attribute == "grad" or not isinstance(found, torch.Tensor):
            return found
    return _read_only(func, name, args, {})


def written_tensors(name: str, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that a function of torch writes to."""
    found = kwargs.get("out")
    targets = list(found) if isinstance(found, (list, tuple)) else [found]
    in_place = name.endswith("_") and not name.endswith("__") or name in _IN_PLACE or name == "__setitem__"
    if in_place:  # torch.nn.init gives the tensor by name
        first = args[0] if args else next(iter(kwargs.values()), None)
        targets += first if isinstance(first, (list, tuple)) else [first]
    return targets


def _read_only(func: Any, name: str, args: Any, kwargs: Any) -> Any:
    """The function's result on fetched tensors; a result in their memory cannot be written_tensors."""
    memory: set[int] = set()

    def fetched(value: Any) -> Any:
        if isinstance(value, _There):
            found = value._fetch()
            value = refuse_backward(found.detach()) if value.requires_grad else found
        elif isinstance(value, _Copy):
            value = value.as_subclass(torch.Tensor)
        elif type(value) in (list, tuple):
            return type(value)(map(fetched, value))
        elif type(value) is dict:
            return {key: fetched(item) for key, item in value.items()}
        else:
            return value
        memory.add(value.untyped_storage().data_ptr())
        return value.clone() if name in _SHARES_MEMORY else value

    def marked(value: Any) -> Any:
        if isinstance(value, numpy.ndarray):
            value.flags.writeable = False
            value = value.view(_Array)
        if isinstance(value, (list, tuple)):
            kind: Any = type(value)
            return kind(*map(marked, value)) if hasattr(value, "_fields") else kind(map(marked, value))
        if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
            return _StorageThere(value)
        if type(value) is torch.Tensor and value.layout is torch.strided:
            return value.as_subclass(_Copy) if value.untyped_storage().data_ptr() in memory else value
        return value

    with DisableTorchFunctionSubclass():
        return marked(func(*fetched(args), **fetched(kwargs)))


def is_there(value: Any) -> bool:
    """Whether a value is a tensor whose numbers are on the ranks."""
    return isinstance(value, _There)
