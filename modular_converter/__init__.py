"""Flattens modular model definitions into single-file models, and reports mistakes in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modular_converter.version import __version__


if TYPE_CHECKING:
    from modular_converter.api import convert_file, convert_paths, convert_source
    from modular_converter.findings import Conversion, Finding, Location, Severity
    from modular_converter.settings.load import load_settings
    from modular_converter.settings.values import Settings

_PUBLIC = {
    "convert_file": "api",
    "convert_paths": "api",
    "convert_source": "api",
    "Settings": "settings.values",
    "load_settings": "settings.load",
    "Finding": "findings",
    "Location": "findings",
    "Severity": "findings",
    "Conversion": "findings",
}

__all__ = [
    "Conversion",
    "Finding",
    "Location",
    "Settings",
    "Severity",
    "__version__",
    "convert_file",
    "convert_paths",
    "convert_source",
    "load_settings",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: a command that only prints its help needs none of them."""
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
