"""Compare conversions with the files on disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from modular_converter.convert.conversion import EXISTS, MISSING, Conversion
from modular_converter.files.generated_files import current_text, path_of_generated
from modular_converter.findings import ConversionError, Finding
from modular_converter.settings.values import Settings


class StaleFile(NamedTuple):
    """A generated file whose text differs from its conversion."""

    path: str
    """Its path as the conversion names it: beside the modular file."""
    target: str
    """Where it is written."""
    conversion: Conversion
    old: str | None
    """Its text on disk; None for a file that is missing."""
    new: str

    @property
    def sources(self) -> set[str]:
        """The files that it is made from, but for those that its modular file gives itself."""
        contents = (path for path, seen in self.conversion.reads.items() if seen not in (MISSING, EXISTS))
        return {path for path in contents if path not in self.conversion.files}


class Difference(NamedTuple):
    """A stale file with the findings about it."""

    path: str
    modular: str
    old: str | None
    """None for a file that is missing."""
    new: str
    findings: tuple[Finding, ...]
    """One of its own, unless it differs only as others do, and those that it shares with them."""
    is_shown: bool = True
    """Whether a reader learns something from its diff: of files that differ alike, one is enough."""


def compare(conversions: Iterable[Conversion], settings: Settings) -> tuple[list[StaleFile], list[Finding]]:
    """The generated files that differ from these conversions, sorted by path, and the findings about unreadable files."""
    stale: list[StaleFile] = []
    unreadable: list[Finding] = []
    for conversion in conversions:
        for path, new in conversion.files.items():
            target = path_of_generated(path, settings)
            try:
                old = current_text(target, settings)
            except ConversionError as error:
                unreadable += error.findings
                continue
            if old != new:
                stale.append(StaleFile(path, target, conversion, old, new))
    return sorted(stale, key=lambda one: one.path), unreadable
