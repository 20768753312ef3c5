"""The cures of findings applied to a modular file: one at a time, each proven by a conversion."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.cures import apply_edits
from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class FixedFile:
    """A modular file with the cures that hold."""

    path: str
    old: str
    new: str
    applied: tuple[Finding, ...]
    """The findings that are cured, in the order of the cures."""
    refused: tuple[Finding, ...] = ()
    """The findings whose cures would change more than intended."""


def apply_fixes(path: str, settings: Settings) -> FixedFile:
    """Apply the cures of a modular file until nothing changes. Nothing is written.

    A cure holds if the generated files stay byte for byte, unless it says that it changes them, if its finding is gone,
    and if there is no new one.
    """
    text = old = Library(settings).text(path)
    now = _converted(path, text, settings)
    applied: list[Finding] = []
    refused: list[Finding] = []  # findings of the present text: another cure may have been in the way
    while not now.failed:
        waiting = (one for one in now.findings if one.fix is not None and one not in refused)
        finding = next(waiting, None)
        if finding is None or finding.fix is None:
            break
        changed = apply_edits(text, finding.fix.edits)
        then = _converted(path, changed, settings)
        if _holds(finding, now, then):
            text, now, refused = changed, then, []
            applied.append(finding)
        else:
            refused.append(finding)
    return FixedFile(path, old, text, tuple(applied), tuple(refused))


def _converted(path: str, text: str, settings: Settings) -> Conversion:
    return Run(settings, {path: text}, workers=1).convert([path])[0]


def _holds(finding: Finding, before: Conversion, after: Conversion) -> bool:
    if after.failed or finding.fix is None:
        return False
    old, new = (Counter(map(_key, one.findings)) for one in (before, after))
    is_same = finding.fix.changes_generated or after.files == before.files
    return is_same and new[_key(finding)] < old[_key(finding)] and not new - old


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message
