"""The cache with which ``generate`` compiles its decoding step."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.tiny.arguments import CACHES


def choose_cache(model: Any, kwargs: dict[str, Any]) -> None:
    """Set a static cache, without which ``generate`` compiles nothing; with a given cache it refuses the setting."""
    settings = getattr(model, "generation_config", None)
    if settings is not None and settings.cache_implementation in (None, "static"):
        settings.cache_implementation = "static" if all(kwargs.get(name) is None for name in CACHES) else None
