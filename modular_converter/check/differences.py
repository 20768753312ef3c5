"""The generated files that differ from the conversions of this run: compare -> explain -> fix. Files that differ in the same way are one cause: a convention or a file that they share."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from modular_converter.check.blame import Cause, CommitHistory
from modular_converter.check.compare import Difference, StaleFile, compare, differ_by_layout_alone, differing_texts
from modular_converter.check.conversions import Conversions, Differences
from modular_converter.check.tree_changes import FileChange, file_changes
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.schedule import levels, reached
from modular_converter.files.write import about_release, put_in_place
from modular_converter.findings import UNPARSABLE, Conversion, ConversionError, Finding, Location
from modular_converter.model.index import index_module
from modular_converter.rules import stale_files, tool_errors
from modular_converter.rules.stale_files import Reason
from modular_converter.settings.load import is_unchecked
from modular_converter.settings.values import Settings


FEWEST = 3
"""Models in which one kind of change is one cause. Two may be a coincidence."""
MANY = 10
"""Models that nobody edits alike by hand."""


class AlikeFiles(NamedTuple):
    """Files that differ by one kind of change."""

    kind: str
    members: Collection[str]
    """The paths of the files."""
    first: str
    """The one whose place the finding has."""
    changes: Mapping[str, Sequence[FileChange]]
    """The changes of every stale file, by path."""
    finding: Finding


def find_groups(stale: Sequence[StaleFile], causes: Mapping[str, Cause], settings: Settings) -> list[AlikeFiles]:
    """The kinds of change that several models have, the most frequent first.

    A file whose cause git proves is not counted, but one whose sources have changed may have the change of a group, too.

    Args:
        stale: files that exist, sorted by path.
        causes: their causes, by path.
    """
    by_path = {one.path: one for one in stale}
    explained = {path for path in by_path if _is_explained(path, by_path, causes, set())}
    if len(by_path.keys() - explained) < FEWEST:
        return []
    every = {
        one.path: file_changes(one.path, one.old or "", one.new) for one in stale if not causes[one.path].is_by_hand
    }
    found = _joined(_without_words(every, explained))
    kinds = _by_kind(found)
    groups = []
    for kind, paths in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0])):
        if _models([path for path in paths if path not in explained]) >= FEWEST:
            members = [by_path[path] for path in paths]
            finding = _diagnose(kind, members, found, len(stale), _shared(members, by_path, settings), settings)
            groups.append(AlikeFiles(kind, frozenset(paths), paths[0], found, finding))
    return groups


def _by_kind(found: Mapping[str, Sequence[FileChange]]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for path, some in found.items():
        for kind in {one.kind for one in some}:
            kinds.setdefault(kind, []).append(path)
    return kinds


def _without_words(
    found: Mapping[str, Sequence[FileChange]], explained: Collection[str]
) -> dict[str, Sequence[FileChange]]:
    """The changes, without their words where each file has other ones: `writes …` for `…`, in many models.

    In few models, these are edits that have nothing in common.
    """
    rare = {
        kind
        for kind, paths in _by_kind(found).items()
        if _models([one for one in paths if one not in explained]) < FEWEST
    }
    forms = {path: [one.form for one in some if one.form and one.kind in rare] for path, some in found.items()}
    models: dict[str, set[str]] = {}
    for path, some in forms.items():
        for form in some if path not in explained else ():
            models.setdefault(form, set()).add(os.path.dirname(path))
    many = {form for form, folders in models.items() if len(folders) >= MANY}
    return {
        path: [one._replace(kind=one.form) if one.kind in rare and one.form in many else one for one in some]
        for path, some in found.items()
    }


def _joined(found: Mapping[str, Sequence[FileChange]]) -> dict[str, Sequence[FileChange]]:
    """The changes, with one kind for those that always stand together: operands are swapped, an import is split in two.

    They stand at the same lines, or in the same files, as often in each.
    """
    at_lines = _renamed(found, lambda changes: {one.old.start for one in changes})
    return _renamed(at_lines, len)


def _renamed(
    found: Mapping[str, Sequence[FileChange]], mark: Callable[[Sequence[FileChange]], object]
) -> dict[str, Sequence[FileChange]]:
    """The changes, with one kind for those with the same marks in the same files."""
    together: dict[str, list[str]] = {}
    for kind, paths in _by_kind(found).items():
        marks = [(path, mark([one for one in found[path] if one.kind == kind])) for path in paths]
        together.setdefault(repr(sorted(marks, key=lambda one: one[0])), []).append(kind)
    whole = {kind: " and ".join(sorted(kinds)) for kinds in together.values() for kind in kinds}
    return {path: [one._replace(kind=whole[one.kind]) for one in some] for path, some in found.items()}


def _is_explained(path: str, stale: Mapping[str, StaleFile], causes: Mapping[str, Cause], seen: set[str]) -> bool:
    """Whether git tells the cause of a file, or that of an outdated file that it is made from."""
    seen.add(path)
    cause = causes[path]
    if cause.is_by_hand or cause.is_in_sources:
        return True
    outdated = [source for source in stale[path].sources if source in stale and source not in seen]
    return any(not causes[one].is_by_hand and _is_explained(one, stale, causes, seen) for one in outdated)


def _models(paths: Sequence[str]) -> int:
    return len({os.path.dirname(path) for path in paths})


def _shared(members: Sequence[StaleFile], stale: Mapping[str, StaleFile], settings: Settings) -> Sequence[str]:
    """The files that all of some files are made from, directly or through others that are out of date."""
    step = functools.cache(lambda path: stale[path].sources if path in stale else ())
    common = frozenset.intersection(*(frozenset(reached(one.sources, step)) for one in members))
    models = (path for path in common if os.path.basename(os.path.dirname(path)) not in settings.no_models)
    return sorted(os.path.basename(path) for path in models if os.path.basename(path) != "__init__.py")


def _diagnose(
    kind: str,
    members: Sequence[StaleFile],
    found: Mapping[str, Sequence[FileChange]],
    files: int,
    shared: Sequence[str],
    settings: Settings,
) -> Finding:
    places = []
    for one in members:
        change = next(change for change in found[one.path] if change.kind == kind)
        lines = (one.old or "").count("\n")
        places.append((Location(one.target, max(1, min(change.old.start, lines))), change))
    if is_unchecked(settings):
        reason = Reason.RELEASE
    elif shared:
        reason = Reason.SOURCE
    else:
        reason = Reason.CONVENTION if _models([one.path for one in members]) >= MANY else Reason.OPEN
    first, (_, change) = members[0], places[0]
    example = _lines(first.old or "", change.old), _lines(first.new, change.new)
    finding = stale_files.files_differ_alike([place for place, _ in places], kind, files, example, reason, shared)
    return finding.with_source(first.old or "")


def _lines(text: str, span: tuple[int, int]) -> str:
    return "\n".join(text.split("\n")[span[0] - 1 : span[1] - 1])


GIVEN = Cause("the given text of the modular file is not the one on disk", is_in_sources=True)
"""The cause where git need not be asked."""


def describe(
    stale: Sequence[StaleFile], settings: Settings, wrong: Finding | None = None, given: Collection[str] = ()
) -> list[Difference]:
    """Each stale file with the definitions that differ and, where git can tell, the cause.

    Args:
        stale: the files, sorted by path.
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
    shared = [one for one in groups if stale.path in one.members]
    kinds = {one.kind for one in shared}
    own = [change for change in (shared[0].changes[stale.path] if shared else ()) if change.kind not in kinds]
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


def _own_finding(stale: StaleFile, cause: Cause | None, line: int | None) -> Finding:
    """The finding about one file alone; `line` is the place of the difference, where it is known."""
    modular = os.path.basename(stale.conversion.path)
    if cause is None:
        return stale_files.generated_file_missing(Location(stale.target), modular)
    old = stale.old or ""
    changed = None if old.splitlines() == stale.new.splitlines() else changed_definitions(old, stale.new)
    lines = old.split("\n")
    same = len(os.path.commonprefix([lines, stale.new.split("\n")]))
    place = Location(stale.target, line or min(same + 1, len(lines)))
    in_layout = differ_by_layout_alone(old, stale.new)
    finding = stale_files.generated_file_differs(place, modular, changed, cause.text, in_layout=in_layout)
    return finding.with_source(old)


def changed_definitions(old: str, new: str) -> list[str]:
    """The top-level definitions whose code differs, or that only one of the texts has, in order of the new text."""
    before, after = map(_definitions, differing_texts(old, new))
    if before is None or after is None:  # no Python, or the cut was inside of a string
        before, after = _definitions(old) or {}, _definitions(new) or {}
    return [name for name in {**after, **before} if before.get(name) != after.get(name)]


def _definitions(text: str) -> dict[str, str] | None:
    """The text of each top-level definition by name; None for a text that is not Python."""
    try:
        return {name: one.text for name, one in index_module(text, "").definitions.items()}
    except UNPARSABLE:
        return None


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
        wrong: the errors about the formatter's version, which keep everything from being written.
        fix_in: the folder that nothing is written out of, "" for the one of the settings; None to write nothing.
        given: the modular files whose texts are not those on disk.
    """
    stale, unreadable = compare(found.made.values(), settings)
    if wrong:
        stale, wrong = leave_out_formatting(stale, wrong, settings)
    differences: Sequence[Difference] = ()
    if stale:
        differences = describe(stale, settings, wrong[0] if wrong else about_release(settings), given)
    fixed = Differences(differences)
    if fix_in is not None and not wrong:
        root = os.path.abspath(fix_in) if fix_in else settings.root
        fixed = fix(differences, found.all, replace(settings, root=root))
    return fixed._replace(failures=(*unreadable, *fixed.failures), wrong_versions=wrong)


def fix(differences: Sequence[Difference], conversions: Sequence[Conversion], settings: Settings) -> Differences:
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
    return Differences(sorted(left, key=lambda one: one.path), written, failures)


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
    left = [
        one
        for one in left
        if (text := again.get(one.target)) is None or not (text == one.new or differ_by_layout_alone(text, one.new))
    ]
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
