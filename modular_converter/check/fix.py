"""Write the generated files that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from modular_converter.check.compare import Difference
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.schedule import levels
from modular_converter.files.generated_files import put_in_place
from modular_converter.findings import ConversionError, Finding
from modular_converter.settings.values import Settings


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
