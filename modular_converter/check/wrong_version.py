"""The check with another version of the formatter: its own differences are only counted, others are reported."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from modular_converter.check.compare import StaleFile
from modular_converter.check.layout import differ_by_layout_alone
from modular_converter.convert.emit.format import format_files
from modular_converter.findings import ConversionError, Finding
from modular_converter.rules import formatter_version
from modular_converter.settings.values import Settings


def leave_out_formatting(
    stale: Sequence[StaleFile], wrong: Sequence[Finding], settings: Settings
) -> tuple[list[StaleFile], Sequence[Finding]]:
    """The files whose code differs, and the errors about versions, the first with the number of the other files.

    A file differs by formatting alone if the available formatter turns the old text into the new one, or if both texts
    have the same syntax tree and comments.

    Args:
        stale: the files that are not what their conversions give.
        wrong: the errors about versions (MC118), at least one.
        settings: they accept every version.
    """
    left = [one for one in stale if one.old is None or not differ_by_layout_alone(one.old, one.new)]
    again = _format_again(left, settings)
    left = [one for one in left if one.target not in again or not _same(again[one.target], one.new)]
    return left, (formatter_version.with_count(wrong[0], len(stale) - len(left)), *wrong[1:])


def _format_again(stale: Sequence[StaleFile], settings: Settings) -> dict[str, str]:
    """The old texts of files as the available formatter formats them, by target. A text that it rejects is left out."""
    olds: dict[str, dict[str, str]] = {}
    formattings = {"": settings}
    for one in stale:
        folder = os.path.dirname(one.path)
        formatting = settings.formatting(folder)
        folder = "" if formatting is settings else folder
        formattings[folder] = formatting
        if one.old is not None:
            olds.setdefault(folder, {})[one.target] = one.old
    again: dict[str, str] = {}
    for folder, texts in olds.items():
        with contextlib.suppress(ConversionError):
            again.update(format_files(texts, formattings[folder]).texts)
    return again


def _same(old: str, new: str) -> bool:
    return old == new or differ_by_layout_alone(old, new)
