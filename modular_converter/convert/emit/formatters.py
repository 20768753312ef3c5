"""The interface of a formatter: a module `format_<name>.py` of this package with `run`, `stamp` and `version`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from modular_converter.findings import Finding
from modular_converter.settings.values import Settings


class UndefinedName(NamedTuple):
    """A name that a formatted text uses but neither defines nor imports. Line and column count from 1."""

    name: str
    line: int
    column: int


class Formatted(NamedTuple):
    """The result of a formatter, by the names of the texts."""

    texts: Mapping[str, str]
    """Every text; a text that could not be formatted is unchanged."""
    undefined: Mapping[str, tuple[UndefinedName, ...]] | None = None
    """The undefined names of each file that has some; None when the formatter does not look for them."""
    failures: Mapping[str, Finding] = MappingProxyType({})
    """The error of each text that the formatter rejected."""


class Formatter(Protocol):
    """The three functions of a module `format_<name>.py`."""

    def run(self, files: Mapping[str, str], settings: Settings) -> Formatted:
        """Format texts, keyed by their final paths. Raises `ConversionError` (MC115) when nothing can be formatted."""

    def stamp(self) -> str:
        """A text that changes when the formatter changes, for the key of a cache."""

    def version(self) -> str:
        """The version of the formatter; "" for one without versions."""


def load_formatter(name: str) -> Formatter:
    """The module of a formatter, one of `FORMATTERS` of the settings. Only the formatter in use is imported."""
    return cast(Formatter, importlib.import_module(f"{__package__}.format_{name}"))
