"""The generated files that differ from the conversions of this run: compare -> explain -> fix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.check.conversions import Conversions
from modular_converter.files.unchecked_release import about_release
from modular_converter.findings import Finding
from modular_converter.settings.values import Settings


if TYPE_CHECKING:
    from modular_converter.check.compare import Difference


class Differences(NamedTuple):
    """The differences of a check: written, left, or unreadable."""

    left: Sequence[Difference] = ()
    """Those that were not written, sorted by path."""
    written: Sequence[str] = ()
    failures: Sequence[Finding] = ()
    """The files that could not be read or written."""
    wrong_versions: Sequence[Finding] = ()
    """The errors about the formatter's version, the first with the number of files that differ for it."""


def find_differences(
    found: Conversions, settings: Settings, wrong: Sequence[Finding], *, fix_in: str | None
) -> Differences:
    """Compare the conversions of this run with the disk, and write the differences if asked to.

    Args:
        found: all conversions of the check.
        settings: the settings of the run.
        wrong: the errors about the formatter's version, which keep everything from being written.
        fix_in: the folder that nothing is written out of, "" for the one of the settings; None to write nothing.
    """
    if not found.made and not wrong:
        return Differences()
    from modular_converter.check.compare import compare  # a check of current files needs none of these
    from modular_converter.check.fix import Fixed, fix
    from modular_converter.check.wrong_version import leave_out_formatting

    stale, unreadable = compare(found.made.values(), settings)
    if wrong:
        stale, wrong = leave_out_formatting(stale, wrong, settings)
    differences: Sequence[Difference] = ()
    if stale:
        from modular_converter.check.describe import describe

        differences = describe(stale, settings, wrong[0] if wrong else about_release(settings))
    fixed = Fixed(left=differences)
    if fix_in is not None and not wrong:
        root = os.path.abspath(fix_in) if fix_in else settings.root
        fixed = fix(differences, found.all, replace(settings, root=root))
    return Differences(fixed.left, fixed.written, (*unreadable, *fixed.failures), wrong)
