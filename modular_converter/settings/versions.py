"""The version of the formatter that a library is formatted with, and the place where a file says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from modular_converter.diagnostics import locate_word
from modular_converter.settings.keys import EXACT_VERSION
from modular_converter.settings.toml_files import TomlFile
from modular_converter.settings.values import PinnedFormatter, Settings


KEY = "formatter-version"
REQUIRED = "required-version"
"""The option of ruff and of black that says the same for all their runs."""


def pinned_formatter(
    base: Settings,
    project: TomlFile | None,
    values: Mapping[str, Any],
    ruff: Iterable[TomlFile],
    black: TomlFile | None,
) -> PinnedFormatter | None:
    """The version that the project names, else that of the profile; None where any version will do.

    Args:
        base: the profile.
        project: the project's file with our table.
        values: that table, by field.
        ruff: the ruff configurations in force, the nearest first; none for the profile's own.
        black: the file with the project's `[tool.black]`.
    """
    formatter = values.get("formatter", base.formatter)
    if project is not None and "formatter_version" in values:
        return PinnedFormatter(formatter, values["formatter_version"], project.place_of(KEY))
    files = [(file, file.ruff) for file in ruff] if formatter == "ruff" else []
    if formatter == "black" and black is not None:
        options = black.tools.get("black")
        files = [(black, options if isinstance(options, dict) else {})]
    for file, options in files:
        if REQUIRED in options:
            version = _exact(options[REQUIRED])
            return PinnedFormatter(formatter, version, locate_word(file.path, REQUIRED, file.text))
    return base.pinned_formatter


def _exact(required: object) -> str:
    """The version of `0.14.10` or `==0.14.10`; "" for a range of versions, which the formatter itself enforces."""
    version = required.removeprefix("==").strip() if isinstance(required, str) else ""
    return version if EXACT_VERSION.fullmatch(version) else ""
