"""Format with black, for projects that use it. Black is an extra and imported only here."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from modular_converter.convert.emit.formatters import Formatted, one_by_one
from modular_converter.findings import ConversionError, Location
from modular_converter.rules import tool_errors
from modular_converter.settings.values import Settings


LINE_LENGTH = 119
"""The line length of a project without `[tool.black]`: that of the profile's ruff settings."""
OPTIONS = {
    "line_length": "line_length",
    "preview": "preview",
    "unstable": "unstable",
    "skip_magic_trailing_comma": "magic_trailing_comma",
    "skip_string_normalization": "string_normalization",
}
"""Keys of `[tool.black]` -> fields of `black.Mode`. The last two say the opposite."""


def run(files: Mapping[str, str], settings: Settings) -> Formatted:
    """Format texts one by one. Raises `ConversionError` when black is missing or its settings are wrong."""
    black = _import_black()
    return one_by_one("black", files, functools.partial(black.format_str, mode=_mode(black, settings)))


def version() -> str:
    """The version of black. Raises `ConversionError` when black is missing."""
    return str(_import_black().__version__)


def _import_black() -> Any:
    try:
        import black
    except ImportError:
        raise ConversionError(tool_errors.missing("black")) from None
    return black


def _mode(black: Any, settings: Settings) -> Any:
    """The project's `[tool.black]` as a `black.Mode`."""
    path = settings.black_config_path
    if not path:
        return black.Mode(line_length=LINE_LENGTH)
    try:
        options = black.parse_pyproject_toml(path)
        fields = {OPTIONS[key]: value for key, value in options.items() if key in OPTIONS}
        for name in ("magic_trailing_comma", "string_normalization"):
            if name in fields:
                fields[name] = not fields[name]
        targets = {black.TargetVersion[str(version).upper()] for version in options.get("target_version", [])}
        return black.Mode(target_versions=targets, **fields)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"its settings cannot be used: {error}"
        raise ConversionError(tool_errors.formatter_failed(Location(path), "black", reason)) from None
