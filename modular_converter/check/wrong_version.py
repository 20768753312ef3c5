"""The check under a formatter of another version: its own differences are counted, and the others are reported."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.check.compare import StaleFile
from modular_converter.check.layout import differ_by_layout_alone
from modular_converter.convert.emit.format import format_files
from modular_converter.diagnostics import ConversionError, Diagnostic
from modular_converter.rules import formatter_version
from modular_converter.settings.values import Settings


def leave_out_formatting(
    stale: Sequence[StaleFile], wrong: Diagnostic, settings: Settings
) -> tuple[list[StaleFile], Diagnostic]:
    """The files whose code differs, and the error about the version with the number of the other files.

    A file differs by formatting alone if the formatter at hand makes the new text of the old one, or if both texts have
    the same syntax tree and comments.

    Args:
        stale: the files that are not what their conversions give.
        wrong: the error about the version (MC118).
        settings: they accept every version.
    """
    left = [one for one in stale if one.old is None or not differ_by_layout_alone(one.old, one.new)]
    try:
        again = format_files({one.target: one.old for one in left if one.old is not None}, settings).texts
    except ConversionError:  # the formatter cannot cope with an old text
        again = {}
    left = [one for one in left if one.target not in again or not _same(again[one.target], one.new)]
    return left, formatter_version.with_count(wrong, len(stale) - len(left))


def _same(old: str, new: str) -> bool:
    return old == new or differ_by_layout_alone(old, new)
