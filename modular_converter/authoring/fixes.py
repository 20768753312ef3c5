"""The fixes of findings about modular files, each proven by a conversion: its finding is gone, there is no new one, and the
generated files stay byte for byte, unless the fix is unsafe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding, apply_edits
from modular_converter.settings.values import Settings


def is_wanted(finding: Finding, unsafe: bool) -> bool:
    """Whether a fix is to be applied."""
    return finding.fix is not None and (unsafe or finding.applicability == "safe")


@dataclass(frozen=True)
class FixedFile:
    """A modular file with the fixes that hold."""

    path: str
    old: str
    new: str
    applied: tuple[Finding, ...]
    """The findings that are fixed, in the order of the fixes."""
    refused: tuple[Finding, ...] = ()
    """The findings whose fixes would change more than intended."""


def apply_fixes(path: str, settings: Settings, unsafe: bool) -> FixedFile:
    """Apply the fixes of a modular file until nothing changes, the unsafe ones only if they are wanted. Nothing is written."""
    text = old = Library(settings).text(path)
    now = _converted(path, settings, {path: text})
    applied: list[Finding] = []
    refused: list[Finding] = []  # findings of the present text: another fix may have been in the way
    while not now.failed:
        waiting = (one for one in now.findings if is_wanted(one, unsafe) and one not in refused)
        finding = next(waiting, None)
        if finding is None:
            break
        fixed = _with_fix(finding, now, settings, {path: text})
        if fixed is None:
            refused.append(finding)
        else:
            text, now, refused = *fixed, []
            applied.append(finding)
    return FixedFile(path, old, text, tuple(applied), tuple(refused))


def fixed_text(finding: Finding, before: Conversion, settings: Settings, texts: Mapping[str, str]) -> str | None:
    """The text of a modular file with the fix of one finding; None where the fix does not hold.

    Args:
        finding: a finding with a fix.
        before: the conversion that gave it.
        settings: those of its project.
        texts: what is read in place of files on disk, the modular file included.
    """
    fixed = _with_fix(finding, before, settings, texts)
    return None if fixed is None else fixed[0]


def _with_fix(
    finding: Finding, before: Conversion, settings: Settings, texts: Mapping[str, str]
) -> tuple[str, Conversion] | None:
    """The text with the fix of one finding and its conversion; see `fixed_text`."""
    if finding.fix is None:
        return None
    changed = apply_edits(texts[before.path], finding.fix.edits)
    after = _converted(before.path, settings, {**texts, before.path: changed})
    return (changed, after) if _holds(finding, before, after) else None


def _converted(path: str, settings: Settings, texts: dict[str, str]) -> Conversion:
    return Run(settings, texts, workers=1).convert([path])[0]


def _holds(finding: Finding, before: Conversion, after: Conversion) -> bool:
    if after.failed:
        return False
    old, new = (Counter(map(_key, one.findings)) for one in (before, after))
    is_same = finding.rule.unsafe_fix or after.files == before.files
    return is_same and new[_key(finding)] < old[_key(finding)] and not new - old


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message
