"""The version of the formatter that a library is formatted with, and the place where a file says so."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modular_converter.findings import locate_word
from modular_converter.settings.keys import EXACT_VERSION
from modular_converter.settings.toml_files import TomlFile
from modular_converter.settings.values import PinnedFormatter, Settings


KEY = "formatter-version"
REQUIRED = "required-version"
"""The option of ruff and of black that names the version for all their runs."""
MOST_CHARACTERS = 100
"""A longer requirement is left to the formatter."""
_BOUND = re.compile(r"(==|!=|<=|>=|<|>|~=)\s*(\d{1,6}(?:\.\d{1,6})*)(\.\*)?")
_COMPARE: Mapping[str, Callable[[list[int], list[int]], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


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
            version = _requirement(options[REQUIRED], formatter)
            return PinnedFormatter(formatter, version, locate_word(file.path, REQUIRED, file.text))
    return base.pinned_formatter


def allows(requirement: str, version: str) -> bool:
    """Whether a version fits a requirement such as `0.14.10` or `>=0.14,<0.16`. Pre-releases fit no range."""
    if EXACT_VERSION.fullmatch(requirement):
        return version == requirement or (
            requirement.replace(".", "").isdigit() and allows(f"=={requirement}", version)
        )
    numbers = version.split(".")
    return all(map(str.isdecimal, numbers)) and all(
        _is_within([int(number) for number in numbers], *bound.groups(default=""))
        for bound in _BOUND.finditer(requirement)
    )


def _is_within(version: list[int], comparison: str, bound: str, wildcard: str) -> bool:
    """Whether a version fits one part of a requirement, as Python packages understand it (PEP 440)."""
    limit = [int(number) for number in bound.split(".")]
    if comparison == "~=":
        return _is_within(version, ">=", bound, "") and version[: len(limit) - 1] == limit[:-1]
    if wildcard:
        version = version[: len(limit)]
    length = max(len(version), len(limit))
    return _COMPARE[comparison](*(one + [0] * (length - len(one)) for one in (version, limit)))


def _requirement(required: object, formatter: str) -> str:
    """`0.14.10` for itself and for `==0.14.10`, else a range without spaces; "" for others, which the formatter judges.

    Black takes a number alone for a major version.
    """
    text = required.replace(" ", "") if isinstance(required, str) else ""
    if EXACT_VERSION.fullmatch(text.removeprefix("==")):
        version = text.removeprefix("==")
        return f"=={version}.*" if formatter == "black" and version.isdigit() else version
    parts = text.split(",")
    return text if all(_BOUND.fullmatch(part) for part in parts) and len(text) < MOST_CHARACTERS else ""
