"""No formatter: the texts as they are, with one line break at the end."""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.convert.emit.formatters import Formatted
from modular_converter.settings.values import Settings


def run(files: Mapping[str, str], settings: Settings) -> Formatted:
    """Leave the texts unformatted."""
    return Formatted({name: text.rstrip("\n") + "\n" for name, text in files.items()})


def version() -> str:
    return ""
