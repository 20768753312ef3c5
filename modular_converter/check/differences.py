"""The generated files that differ from the conversions of this run: compare -> explain -> fix. Differences of another
version of the formatter are only counted. A check of current files needs none of this.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from modular_converter.check.compare import Difference, StaleFile, compare, differ_by_layout_alone
from modular_converter.check.conversions import Conversions, Differences
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.schedule import levels
from modular_converter.files.generated_files import about_release, put_in_place
from modular_converter.findings import ConversionError, Finding
from modular_converter.rules import tool_errors
from modular_converter.settings.values import Settings


def find_differences(
    found: Conversions,
    settings: Settings,
    wrong: Sequence[Finding],
    *,
    fix_in: str | None,
    given: Collection[str] = (),
) -> Differences:
    """Compare the conversions of this run with the disk, and write the differences if asked to.

    Args:
        found: all conversions of the check.
        settings: the settings of the run.
        wrong: the errors about the formatter's version, which keep everything from being written.
        fix_in: the folder that nothing is written out of, "" for the one of the settings; None to write nothing.
        given: the modular files whose texts are not those on disk.
    """
    stale, unreadable = compare(found.made.values(), settings)
    if wrong:
        stale, wrong = leave_out_formatting(stale, wrong, settings)
    differences: Sequence[Difference] = ()
    if stale:
        from modular_converter.check.describe import describe

        differences = describe(stale, settings, wrong[0] if wrong else about_release(settings), given)
    fixed = Fixed(left=differences)
    if fix_in is not None and not wrong:
        root = os.path.abspath(fix_in) if fix_in else settings.root
        fixed = fix(differences, found.all, replace(settings, root=root))
    return Differences(fixed.left, fixed.written, (*unreadable, *fixed.failures), wrong)


class Fixed(NamedTuple):
    """The outcome of writing."""

    written: Sequence[str] = ()
    left: Sequence[Difference] = ()
    """The differences that could not be written, sorted by path."""
    failures: Sequence[Finding] = ()


def fix(differences: Sequence[Difference], conversions: Sequence[Conversion], settings: Settings) -> Fixed:
    """Write each difference: neighbours before the files that are made from them."""
    written: list[str] = []
    left: list[Difference] = []
    failures: list[Finding] = []
    for difference in _in_order(differences, conversions):
        try:
            put_in_place(difference.path, difference.new, difference.modular, settings)
            written.append(difference.path)
        except ConversionError as error:
            failures += (one for one in error.findings if one not in failures)
            left.append(difference)
    return Fixed(written, sorted(left, key=lambda one: one.path), failures)


def _in_order(differences: Sequence[Difference], conversions: Sequence[Conversion]) -> list[Difference]:
    """The differences, each after those of the modular files that it builds on."""
    giver = {path: conversion.path for conversion in conversions for path in conversion.files}
    needs = {one.path: {giver[read] for read in one.reads if read in giver} - {one.path} for one in conversions}
    rank = {path: number for number, level in enumerate(levels(needs)) for path in level}
    return sorted(differences, key=lambda one: (rank.get(one.modular, len(rank)), one.path))


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
    return left, (tool_errors.with_count(wrong[0], len(stale) - len(left)), *wrong[1:])


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
