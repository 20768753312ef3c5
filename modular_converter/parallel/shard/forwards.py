"""Forwards of modules: whose code asks for a weight, a size or a product; and single modules that get another forward.

While a sharded model runs its forward, which computes with shares, its thread is marked, which answers at once for all
that runs in it. Elsewhere (a module inside that is called by itself, layers that a backward computes again) the frames of
the callers answer. A module with another forward gets a class of the same name, which is made once; one such forward
refuses ids out of an embedding's range: on a GPU, such a lookup breaks the device for good.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.utils.checkpoint

from modular_converter.parallel.torch_private import call_impl, functorch_is_active


_CALL = call_impl.__code__
_AGAIN = torch.utils.checkpoint.__file__


class _Thread(threading.local):
    group: Any = None
    """The processes of the sharded model whose forward runs."""


THREAD = _Thread()


def never_traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which ``torch.compile`` calls as it is: code that sends messages, or waits for other processes, has no trace."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            disable: Any = torch.compiler.disable  # its import of dynamo takes a second
            return disable(function)(*args, **kwargs)
        return function(*args, **kwargs)

    return called


def within(group: Any) -> bool:
    """Whether the forward of the whole sharded model of these processes runs in this thread."""
    return THREAD.group is group


@contextmanager
def forward_of(group: Any) -> Iterator[None]:
    """The block of the forward of a whole sharded model; compiled code has none."""
    before, THREAD.group = THREAD.group, group
    try:
        yield
    finally:
        THREAD.group = before


def called_alone(module: torch.nn.Module) -> bool:
    """Whether the caller's forward, of this module, runs by itself and not in that of a module around it."""
    return THREAD.group is None and all(around is module for around in _callers())


def runs_in(module: torch.nn.Module, group: Any) -> bool:
    """Whether code of a module's forward, or of one around it, calls the caller; any other code is to see no share.

    Args:
        group: the processes that share out the module.
    """
    return within(group) or any(any(one is module for one in around.modules()) for around in _callers())


def innermost() -> torch.nn.Module | None:
    """The module whose forward calls the caller."""
    return next(_callers(), None)


def _callers() -> Iterator[torch.nn.Module]:
    """The modules whose forwards are under way, or whose functions a backward computes again, from the inside."""
    frame = sys._getframe(1)
    while frame is not None:
        again = frame.f_back is not None and frame.f_back.f_code.co_filename == _AGAIN
        if again or frame.f_code is _CALL or frame.f_code.co_name == "forward":
            around = frame.f_locals.get("self")
            if isinstance(around, torch.nn.Module):
                yield around
            elif again:
                modules = (one for one in frame.f_locals.values() if isinstance(one, torch.nn.Module))
                yield from (one for one in modules if _is_code_of(cast(Any, type(one)), frame.f_code))
        frame = frame.f_back  # type: ignore[assignment]


@functools.lru_cache(256)
def _is_code_of(kind: type[Any], code: types.CodeType) -> bool:
    """Whether the code of a function stands in a module's class, in a method or within one."""

    def holds(outer: types.CodeType) -> bool:
        return outer is code or any(holds(one) for one in outer.co_consts if isinstance(one, types.CodeType))

    own = kind.__mro__[: kind.__mro__.index(torch.nn.Module)]
    methods = (inspect.unwrap(one) for base in own for one in vars(base).values() if callable(one))
    return any(holds(one.__code__) for one in methods if isinstance(one, types.FunctionType))


_MADE: dict[tuple[type[Any], type[Any], bool], type[Any]] = {}
_INSERTED = "_inserted"


def swap_forward(module: torch.nn.Module, kind: type[Any], outermost: bool = False) -> None:
    """Give a module the forward of ``kind``, below the additions of its own class to a standard class.

    Args:
        outermost: above these additions instead.
    """
    module.__class__ = _made(type(module), kind, outermost)


def _made(old: type[Any], kind: type[Any], outermost: bool) -> type[Any]:
    """A class with another innermost or outermost forward.

    A subclass of ``nn.Linear`` that calls ``super().forward`` keeps its additions: ``kind`` goes between both classes.
    """
    if (old, kind, outermost) not in _MADE:
        usual = (torch.nn.Linear, torch.nn.Embedding)
        standard = next((base for base in old.__mro__ if base in usual or is_conv1d(base)), old)
        above = outermost or old is standard
        bases = (kind, old) if above else (old, _made(standard, kind, False))
        body = {"__module__": old.__module__, "__qualname__": old.__qualname__, _INSERTED: True}
        _MADE[old, kind, outermost] = type(old.__name__, bases, body)
    return _MADE[old, kind, outermost]


def conv1d_product(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The product of transformers' ``Conv1D``."""
    rows = input.reshape(-1, input.shape[-1])
    found = torch.mm(rows, weight) if bias is None else torch.addmm(bias, rows, weight)
    return found.view(*input.shape[:-1], -1)


def is_conv1d(kind: type[Any]) -> bool:
    """Whether a class is transformers' ``Conv1D``, a linear layer whose weight is stored the other way round."""
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.") and _INSERTED not in vars(kind)


class _Checked(torch.nn.Embedding):
    """Put before the module's class. The wait for the ids takes 20 us on a GPU that is otherwise idle."""

    _checked_name: str
    _checked_rows: int

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            refuse_ids(self, input)
        return super().forward(input)


def refuse_ids(table: Any, ids: Any) -> None:
    """Raise ``IndexError`` for ids out of the range of an embedding of ``check_ids``, wherever its weight is."""
    rows = getattr(table, "_checked_rows", 0)
    if not rows or not _has_values(ids):
        return
    low, high = torch.stack(torch.aminmax(ids)).tolist()
    if low < 0 or high >= rows:
        place = ((ids < 0) | (ids >= rows)).nonzero()[0].tolist()
        raise IndexError(
            f"index out of range: {int(ids[tuple(place)])} at {place} of the ids of {table._checked_name}, "
            f"which has {rows} rows, 0 to {rows - 1}"
        )


def _has_values(ids: Any) -> bool:
    if not isinstance(ids, torch.Tensor) or ids.is_meta or not ids.numel() or functorch_is_active():
        return False
    return not (ids.is_cuda and torch.cuda.is_current_stream_capturing())


def check_ids(model: torch.nn.Module) -> dict[torch.nn.Module, type[Any]]:
    """Let each embedding of a whole model refuse ids out of its range, also after the model has been sharded.

    Returns:
        The embeddings with their own classes, for ``uncheck_ids``.
    """
    own: dict[torch.nn.Module, type[Any]] = {}
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.Embedding):
            own[module] = type(module)
            rows = module.weight.shape[0]
            swap_forward(module, _Checked)
            module.__dict__.update(_checked_name=path or type(module).__name__, _checked_rows=rows)
    return own


def uncheck_ids(own: dict[torch.nn.Module, type[Any]]) -> None:
    """Give embeddings their own classes back."""
    for module, kind in own.items():
        module.__class__ = kind
        for name in _Checked.__annotations__:
            module.__dict__.pop(name, None)
