"""Compare conversions with the files on disk, and describe each difference."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.convert.conversion import EXISTS, MISSING, Conversion
from modular_converter.files.generated_files import current_text, path_of_generated
from modular_converter.findings import UNPARSABLE, ConversionError, Finding, Location
from modular_converter.rules import generated_file_differs, generated_file_missing
from modular_converter.settings.values import Settings


if TYPE_CHECKING:
    from modular_converter.check.blame import CommitHistory

BETWEEN = "\n\n\n"
"""The blank lines between the classes and functions of a formatted file."""


class StaleFile(NamedTuple):
    """A generated file whose text differs from its conversion."""

    path: str
    """Its path as the conversion names it: beside the modular file."""
    target: str
    """Where it is written."""
    conversion: Conversion
    old: str | None
    """Its text on disk; None for a file that is missing."""
    new: str


class Difference(NamedTuple):
    """A stale file with the finding about it."""

    path: str
    modular: str
    old: str | None
    """None for a file that is missing."""
    new: str
    finding: Finding


def compare(conversions: Iterable[Conversion], settings: Settings) -> tuple[list[StaleFile], list[Finding]]:
    """The generated files that differ from these conversions, sorted by path, and the findings about unreadable files."""
    stale: list[StaleFile] = []
    unreadable: list[Finding] = []
    for conversion in conversions:
        for path, new in conversion.files.items():
            target = path_of_generated(path, settings)
            try:
                old = current_text(target, settings)
            except ConversionError as error:
                unreadable += error.findings
                continue
            if old != new:
                stale.append(StaleFile(path, target, conversion, old, new))
    return sorted(stale, key=lambda one: one.path), unreadable


def describe(stale: Sequence[StaleFile], wrong: Finding | None = None) -> list[Difference]:
    """Each stale file with the definitions that differ and, where git can tell, the cause.

    Args:
        stale: the files.
        wrong: the finding about the formatter's version or the release, which keeps them from being written.
    """
    if not stale:
        return []
    from modular_converter.check.blame import (
        CommitHistory,  # starts with subprocess, which an ordinary check does not need
    )

    history = CommitHistory()
    outdated = {one.path for one in stale}
    return [_describe(one, outdated, history, wrong) for one in stale]


def _describe(stale: StaleFile, outdated: Set[str], history: CommitHistory, wrong: Finding | None) -> Difference:
    """The finding about one stale file; `outdated` are the paths of all stale files."""
    modular = os.path.basename(stale.conversion.path)
    if stale.old is None and not os.path.lexists(stale.target):
        finding = generated_file_missing.diagnose(Location(stale.target), modular)
    else:
        contents = (path for path, seen in stale.conversion.reads.items() if seen not in (MISSING, EXISTS))
        sources = {path for path in contents if path not in stale.conversion.files}
        cause = history.cause(stale.target, stale.new, sources - outdated, sources & outdated)
        old = stale.old or ""
        changed = None if old.splitlines() == stale.new.splitlines() else changed_definitions(old, stale.new)
        place = Location(stale.target, _first_difference(old.split("\n"), stale.new.split("\n")))
        from modular_converter.check.layout import differ_by_layout_alone  # an ordinary check needs no parser

        in_layout = differ_by_layout_alone(old, stale.new)
        finding = generated_file_differs.diagnose(place, modular, changed, cause, in_layout=in_layout)
        finding = finding.with_source(old)
    if wrong is not None:
        finding = replace(finding, help=f"First cure {wrong.code}. {finding.help}")
    return Difference(stale.target, stale.conversion.path, stale.old, stale.new, finding)


def _first_difference(old: Sequence[str], new: Sequence[str]) -> int:
    """The number of the first line of `old` that differs, or of its last line."""
    shorter = min(len(old), len(new))
    same = next((number for number in range(shorter) if old[number] != new[number]), shorter)
    return min(same + 1, len(old))


def changed_definitions(old: str, new: str) -> list[str]:
    """The top-level definitions whose code differs, or that only one of the texts has, in order of the new text."""
    olds, news = old.split(BETWEEN), new.split(BETWEEN)
    same = set(olds).intersection(news)  # the equal parts, mostly nearly all, are not parsed
    before, after = (_definitions(BETWEEN.join(one for one in some if one not in same)) for some in (olds, news))
    if before is None or after is None:  # the cut was inside of a string
        before, after = _definitions(old) or {}, _definitions(new) or {}
    return [name for name in {**after, **before} if before.get(name) != after.get(name)]


def _definitions(text: str) -> dict[str, str] | None:
    """The text of each top-level definition by name; None for a text that is not Python."""
    from modular_converter.convert.source.index import index_module  # an ordinary check needs no parser

    try:
        return {name: one.text for name, one in index_module(text, "").definitions.items()}
    except UNPARSABLE:
        return None
