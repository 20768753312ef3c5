"""The result of a conversion: generated texts, findings, and everything that they depend on.

It stands apart from the records of the steps, because a check that converts nothing needs only this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from modular_converter.findings import Finding, Severity


EXISTS, UNREADABLE, MISSING = "exists", "unreadable", ""
"""In place of a file's hash: the file was only asked for and is there; it could not be read; it is not there."""


class Origin(NamedTuple):
    """Where a generated definition comes from: `path:line name`, and how it was made."""

    path: str
    line: int
    name: str
    how: str
    """`written`, `merged` (a child laid over its parent) or `copied`."""


@dataclass(frozen=True)
class Conversion:
    """The result of converting one modular file."""

    path: str
    files: Mapping[str, str]
    """Absolute path of each generated file -> its text. Empty when there are errors."""
    findings: tuple[Finding, ...] = ()
    """The findings, without those that the author silences."""
    origins: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict)
    """Path of each generated file -> where each of its definitions comes from, in order."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Every file that the result depends on, sorted -> the SHA-256 hash of its content, or one of the words above."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Every package that was looked for by name -> its folder, "" for a package that was not found."""
    requires: frozenset[str] = frozenset()
    """The neighbour files that the modular file imports from, whether they exist or not."""

    found: tuple[Finding, ...] = ()
    """The findings before the settings leave some out or change their severity."""

    @property
    def failed(self) -> bool:
        """Whether an error stopped it."""
        return any(finding.is_error for finding in self.findings)

    def strictly(self) -> Conversion:
        """The same with warnings as errors, which leave no files."""
        if not self.findings:
            return self
        findings = tuple(one.with_severity(Severity.ERROR) for one in self.findings)
        return replace(self, files={}, findings=findings)
