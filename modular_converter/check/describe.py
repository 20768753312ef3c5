"""The findings about stale files: what differs in each and why, and once what differs in the same way in many."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from modular_converter.check.alike import AlikeFiles, find_groups
from modular_converter.check.blame import Cause, CommitHistory
from modular_converter.check.compare import Difference, StaleFile, differ_by_layout_alone
from modular_converter.findings import UNPARSABLE, Finding, Location
from modular_converter.model.index import index_module
from modular_converter.rules import stale_files
from modular_converter.settings.values import Settings


BETWEEN = "\n\n\n"
"""The blank lines between the classes and functions of a formatted file."""


GIVEN = Cause("the given text of the modular file is not the one on disk", is_in_sources=True)
"""The cause where git need not be asked."""


def describe(
    stale: Sequence[StaleFile], settings: Settings, wrong: Finding | None = None, given: Collection[str] = ()
) -> list[Difference]:
    """Each stale file with the definitions that differ and, where git can tell, the cause.

    Args:
        stale: the files, sorted by path.
        settings: the settings of the run.
        given: the modular files whose texts are not those on disk.
        wrong: the finding about the formatter's version or the release, which keeps them from being written.
    """
    history = CommitHistory()
    outdated = {one.path for one in stale}
    there = [one for one in stale if one.old is not None or os.path.lexists(one.target)]
    causes = {
        one.path: GIVEN
        if one.conversion.path in given
        else history.cause(one.target, one.new, one.sources - outdated, one.sources & outdated)
        for one in there
    }
    groups = find_groups(there, causes, settings)
    return [_describe(one, causes, groups, wrong) for one in stale]


def _describe(
    stale: StaleFile, causes: Mapping[str, Cause], groups: Sequence[AlikeFiles], wrong: Finding | None
) -> Difference:
    """The findings about one stale file."""
    shared = [one for one in groups if stale.path in one.members]
    own = [change for change in (shared[0].changes[stale.path] if shared else ()) if not _is_in(change.kind, shared)]
    findings = [one.finding for one in shared]
    if not shared or own:
        line = own[0].old.start if own else None
        finding = _own_finding(stale, causes.get(stale.path), line)
        if shared:
            finding = stale_files.besides(finding, shared[0].finding)
        if wrong is not None:
            finding = replace(finding, help=f"First cure {wrong.code}. {finding.help}")
        findings.insert(0, finding)
    is_shown = not shared or bool(own) or any(one.first == stale.path for one in shared)
    return Difference(stale.target, stale.conversion.path, stale.old, stale.new, tuple(findings), is_shown=is_shown)


def _is_in(kind: str, groups: Sequence[AlikeFiles]) -> bool:
    return any(kind == one.kind for one in groups)


def _own_finding(stale: StaleFile, cause: Cause | None, line: int | None) -> Finding:
    """The finding about one file alone; `line` is the place of the difference, where it is known."""
    modular = os.path.basename(stale.conversion.path)
    if cause is None:
        return stale_files.generated_file_missing(Location(stale.target), modular)
    old = stale.old or ""
    changed = None if old.splitlines() == stale.new.splitlines() else changed_definitions(old, stale.new)
    place = Location(stale.target, line or _first_difference(old.split("\n"), stale.new.split("\n")))
    in_layout = differ_by_layout_alone(old, stale.new)
    finding = stale_files.generated_file_differs(place, modular, changed, cause.text, in_layout=in_layout)
    return finding.with_source(old)


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
    try:
        return {name: one.text for name, one in index_module(text, "").definitions.items()}
    except UNPARSABLE:
        return None
