"""`modular-convert --fix`: the fixes of findings, each proven by a conversion, applied to modular files and written or
shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from modular_converter.authoring.fixes import FixedFile, apply_fixes, is_wanted
from modular_converter.commands.output import print_diff
from modular_converter.convert.conversion import Conversion
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.generated_files import refuse_change
from modular_converter.files.read import in_form_of, is_installed, root_of
from modular_converter.findings import ConversionError, Location
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
        if not any(is_wanted(finding, unsafe) for finding in conversion.findings):
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
