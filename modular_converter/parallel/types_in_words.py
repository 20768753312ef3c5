"""Floating types by the words that people write for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modular_converter.parallel.errors import ApplyError


if TYPE_CHECKING:
    import torch

_WORDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "single": "float32",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
}


def floating_type(value: Any, option: str) -> torch.dtype:
    """The type of torch: itself, or for a word such as ``"bf16"``, ``"bfloat16"`` or ``"torch.bfloat16"``.

    Raises ``ApplyError`` with the option for anything else.
    """
    import torch

    found = value
    if isinstance(value, str):
        word = value.strip().lower().removeprefix("torch.")
        found = getattr(torch, _WORDS.get(word, word), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ApplyError(f"{option}={value!r}: give a floating type, such as torch.bfloat16 or 'bf16'")
    return found
