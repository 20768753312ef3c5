"""The result of a conversion: texts, findings, and the files that they depend on.

A check that is answered from the cache imports this file and none of the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from modular_converter.diagnostics import Diagnostic, Severity


EXISTS, UNREADABLE = "exists", "unreadable"
"""Stand for the content of a file of which only the existence was asked, and of a file that could not be read."""


class Part(NamedTuple):
    """What a conversion has looked at in a module, apart from the module's shape (`source/parts.py`)."""

    statements: tuple[int, ...]
    """Their positions in the module, sorted."""
    digest: str
    """A hash of them and of the shape."""


@dataclass(frozen=True)
class Origin:
    """Where a generated definition comes from: `path:line name`, and how it got here."""

    path: str
    line: int
    name: str
    how: str
    """`written`, `merged` (a child laid over its parent) or `copied`."""


@dataclass(frozen=True)
class Conversion:
    """The result for one modular file."""

    path: str
    files: Mapping[str, str]
    """Absolute path of each generated file -> its text. Empty when there are errors."""
    diagnostics: tuple[Diagnostic, ...] = ()
    origins: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict)
    """Path of each generated file -> where each of its definitions comes from, in order."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Every file that the result depends on, in order -> what stands for its content (`Library.reads`)."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """Those of them on which it depends in part only."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Every package that was looked for by name -> its folder, "" for one that was not found."""

    @property
    def failed(self) -> bool:
        """Whether an error stopped it."""
        return any(diagnostic.is_error for diagnostic in self.diagnostics)

    def strictly(self) -> Conversion:
        """The same with warnings as errors, which leave no files."""
        if not self.diagnostics:
            return self
        findings = tuple(one.with_severity(Severity.ERROR) for one in self.diagnostics)
        return replace(self, files={}, diagnostics=findings)
