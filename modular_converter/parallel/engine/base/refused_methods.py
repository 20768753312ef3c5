"""Methods that a sharded model refuses, because they would reach one share only, or none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from modular_converter.parallel.errors import PlanError


# Methods of torch and transformers that read or change weights or modules: the other ranks would not see the change.
CHANGE_WEIGHTS = (
    "add_adapter",
    "delete_adapter",
    "disable_adapters",
    "enable_adapters",
    "load_adapter",
    "load_state_dict",
    "requires_grad_",
    "resize_position_embeddings",
    "resize_token_embeddings",
    "set_adapter",
    "set_attn_implementation",
    "set_input_embeddings",
    "set_output_embeddings",
)


def refusals(
    own: type[Any], names: tuple[str, ...], kind: type[PlanError], text: str
) -> dict[str, Callable[..., Any]]:
    """Methods that raise, in place of the methods of a class with these names.

    Args:
        kind: of the error.
        text: of the error; ``{name}`` in it becomes the method's name.
    """
    return {name: _refusal(getattr(own, name), kind, text.format(name=name)) for name in names if hasattr(own, name)}


def _refusal(own: Callable[..., Any], kind: type[PlanError], text: str) -> Callable[..., Any]:
    @functools.wraps(own)
    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise kind(text)

    return refused


def refuse(kind: type[PlanError], text: str, *args: Any, **kwargs: Any) -> Any:
    """Raise the error; for a partial function that an object has in place of a method."""
    raise kind(text)
