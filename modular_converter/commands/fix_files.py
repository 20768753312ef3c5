"""`modular-convert --fix`: the fixes of findings, each proven by a conversion, applied to modular files and written or
shown.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from modular_converter.commands.output import print_diff
from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.source.library import Library
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.generated_files import refuse_change
from modular_converter.files.read import in_form_of, is_installed, root_of
from modular_converter.findings import ConversionError, Finding, Location, apply_edits
from modular_converter.reporting.display import count, report_line
from modular_converter.rules import input_files
from modular_converter.settings.values import Settings


def fix_files(
    conversions: Sequence[Conversion],
    settings: Settings,
    *,
    writes: bool,
    unsafe: bool = False,
    diff_format: str = "",
    quiet: bool = False,
) -> dict[str, str]:
    """Apply the fixes to each modular file, and write or show it; path -> new text of those that change.

    Args:
        conversions: the conversions of the files as they are.
        settings: the settings of the run.
        writes: whether the files are written.
        unsafe: whether fixes are applied that change generated files.
        diff_format: the format of the findings, to print a diff in place of writing; "" for none.
        quiet: do not print the fixes.

    Raises `ConversionError` for a file that may not be written.
    """
    texts: dict[str, str] = {}
    for conversion in conversions:
        if not any(_is_wanted(finding, unsafe) for finding in conversion.findings):
            continue
        fixed = apply_fixes(conversion.path, settings, unsafe)
        if fixed.applied:
            texts[fixed.path] = fixed.new
            if diff_format:
                print_diff(fixed.path, fixed.old, fixed.new, diff_format)
            elif writes:
                _write(fixed, settings)
        if not quiet:
            _tell(fixed, "fixed" if writes else "would be fixed")
    return texts


def _is_wanted(finding: Finding, unsafe: bool) -> bool:
    return finding.fix is not None and (unsafe or finding.applicability == "safe")


def _write(fixed: FixedFile, settings: Settings) -> None:
    if is_installed(os.path.realpath(fixed.path)):
        raise ConversionError(input_files.read_only_target(Location(fixed.path), "it belongs to an installed package"))
    refuse_change(fixed.path, settings)
    write_atomically(fixed.path, in_form_of(fixed.path, fixed.new), root_of(fixed.path, settings))


def _tell(fixed: FixedFile, verb: str) -> None:
    """Print to stderr the findings that are fixed, and the fixes that do not hold."""
    path = os.path.relpath(fixed.path)
    if fixed.applied:
        titles = ", ".join(f"{one.code} {one.fix.title}" for one in fixed.applied if one.fix)
        print(report_line(f"{path}: {count(len(fixed.applied), 'finding')} {verb}: {titles}"), file=sys.stderr)
    for one in fixed.refused:
        reason = "its fix would change other lines too, so it is not applied"
        print(report_line(f"{path}:{one.location.line}: {one.code}: {reason}"), file=sys.stderr)


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
    """Apply the fixes of a modular file until nothing changes, the unsafe ones only if they are wanted. Nothing is written.

    A fix holds if its finding is gone, if there is no new one, and if the generated files stay byte for byte, unless it is
    unsafe.
    """
    text = old = Library(settings).text(path)
    now = _converted(path, text, settings)
    applied: list[Finding] = []
    refused: list[Finding] = []  # findings of the present text: another fix may have been in the way
    while not now.failed:
        waiting = (one for one in now.findings if _is_wanted(one, unsafe) and one not in refused)
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
    is_same = finding.rule.unsafe_fix or after.files == before.files
    return is_same and new[_key(finding)] < old[_key(finding)] and not new - old


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message
