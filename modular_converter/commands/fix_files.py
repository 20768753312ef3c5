"""`modular-convert --fix`: the cures of findings, applied to modular files and written or shown."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from modular_converter.authoring.apply_fixes import FixedFile, apply_fixes
from modular_converter.commands.output import print_diff
from modular_converter.convert.conversion import Conversion
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.links import is_installed, root_of
from modular_converter.files.text_form import in_form_of
from modular_converter.files.unchecked_release import refuse_change
from modular_converter.findings import ConversionError, Location
from modular_converter.reporting.counts import count
from modular_converter.reporting.safe import report_line
from modular_converter.rules import read_only_target
from modular_converter.settings.values import Settings


def fix_files(
    conversions: Sequence[Conversion], settings: Settings, *, writes: bool, diff_format: str = "", quiet: bool = False
) -> dict[str, str]:
    """Apply the cures to each modular file, and write or show it; path -> new text of those that change.

    Args:
        conversions: the conversions of the files as they are.
        settings: the settings of the run.
        writes: whether the files are written.
        diff_format: the format of the findings, to print a diff in place of writing; "" for none.
        quiet: do not print the cures.

    Raises `ConversionError` for a file that may not be written.
    """
    texts: dict[str, str] = {}
    for conversion in conversions:
        if not any(finding.fix for finding in conversion.findings):
            continue
        fixed = apply_fixes(conversion.path, settings)
        if fixed.applied:
            texts[fixed.path] = fixed.new
            if diff_format:
                print_diff(fixed.path, fixed.old, fixed.new, diff_format)
            elif writes:
                _write(fixed, settings)
        if not quiet:
            _tell(fixed, "cured" if writes else "would be cured")
    return texts


def _write(fixed: FixedFile, settings: Settings) -> None:
    if is_installed(os.path.realpath(fixed.path)):
        raise ConversionError(read_only_target.diagnose(Location(fixed.path), "it belongs to an installed package"))
    refuse_change(fixed.path, settings)
    write_atomically(fixed.path, in_form_of(fixed.path, fixed.new), root_of(fixed.path, settings))


def _tell(fixed: FixedFile, verb: str) -> None:
    """Print to stderr the findings that are cured, and the cures that do not hold."""
    path = os.path.relpath(fixed.path)
    if fixed.applied:
        titles = ", ".join(f"{one.code} {one.fix.title}" for one in fixed.applied if one.fix)
        print(report_line(f"{path}: {count(len(fixed.applied), 'finding')} {verb}: {titles}"), file=sys.stderr)
    for one in fixed.refused:
        reason = "its cure would change other lines too, so it is not applied"
        print(report_line(f"{path}:{one.location.line}: {one.code}: {reason}"), file=sys.stderr)
