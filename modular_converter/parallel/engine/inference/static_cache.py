"""The cache with which ``generate`` compiles its decoding step."""

from __future__ import annotations

from typing import Any


def choose_cache(model: Any, kwargs: dict[str, Any]) -> None:
    """Only with a static cache does ``generate`` compile its decoding step, with CUDA graphs on GPUs. It refuses the
    setting together with a given cache.
    """
    settings = getattr(model, "generation_config", None)
    if settings is not None and settings.cache_implementation in (None, "static"):
        settings.cache_implementation = "static" if kwargs.get("past_key_values") is None else None
