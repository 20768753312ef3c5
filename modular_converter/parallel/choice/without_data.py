"""Run a model on tensors without data, which takes milliseconds and shows shapes and operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode


META = torch.device("meta")
T = TypeVar("T")


class Guesses(TorchFunctionMode):
    """A context in which tensors without data answer questions about their values with no or zero.

    Args:
        finds_nothing: they also have no entry other than zero, so that no expert is called; else this question fails.
    """

    def __init__(self, finds_nothing: bool = True) -> None:
        super().__init__()
        self.finds_nothing = finds_nothing

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _ANSWERS and args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return _ANSWERS[name](args[0])
        if name == "nonzero" and self.finds_nothing and args and args[0].is_meta:
            none = torch.empty(0, args[0].dim(), dtype=torch.int64, device=META)
            return none.unbind(1) if (kwargs or {}).get("as_tuple") else none
        if name in _BFLOAT16_ALONE and args and args[0].is_meta:
            return func(*_half(args), **_half(kwargs or {})).to(args[0].dtype)
        return func(*args, **(kwargs or {}))


def _number(tensor: torch.Tensor) -> bool | int | float:
    return False if tensor.dtype == torch.bool else 0.0 if tensor.is_floating_point() else 0


_ANSWERS: dict[str, Callable[[torch.Tensor], Any]] = {
    **dict.fromkeys(("__bool__", "__contains__"), lambda _: False),
    **dict.fromkeys(("__int__", "__index__"), lambda _: 0),
    "__float__": lambda _: 0.0,
    "item": _number,
    "_is_all_true": lambda _: torch.tensor(True, device="cpu"),  # of checks: no data could be wrong
}
# Products that take no other type than bfloat16 without data.
_BFLOAT16_ALONE = ("_grouped_mm", "grouped_mm")


def _half(values: Any) -> Any:
    def half(value: Any) -> Any:
        return value.bfloat16() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return {name: half(v) for name, v in values.items()} if isinstance(values, dict) else [half(v) for v in values]


def run_without_data(model: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
    """The result of a model on the meta device; the inputs need no data. Raises the errors of the model's code."""
    with torch.no_grad(), Guesses():
        return model(*map(on_meta, args), **{name: on_meta(value) for name, value in (kwargs or {}).items()})


def tried_without_data(run: Callable[[], T]) -> T:
    """The result of a run on the meta device.

    If the run fails, a second try creates all new tensors on the meta device: a mask that the model's code creates
    without a device has data, and cannot be combined with tensors without data. Raises the error of the first try.
    """
    try:
        return run()
    except Exception as error:
        first = error
    try:
        with META:
            return run()
    except Exception:
        raise first from None


def on_meta(value: Any) -> Any:
    """A value with all tensors in lists, tuples and dicts on the meta device."""
    if isinstance(value, torch.Tensor):
        return value.to(META)
    if isinstance(value, dict):
        return {name: on_meta(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(on_meta(item) for item in value)
    return value
