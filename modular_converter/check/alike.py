"""Stale files that differ in the same way, as one cause: a convention or a file that they share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from modular_converter.check.blame import Cause
from modular_converter.check.compare import StaleFile
from modular_converter.check.tree_changes import FileChange, file_changes
from modular_converter.findings import Finding, Location
from modular_converter.rules import stale_files
from modular_converter.rules.stale_files import Reason
from modular_converter.settings.values import Settings
from modular_converter.settings.versions import is_unchecked


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
        settings: the settings of the run.
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
    """The files of each kind of change."""
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
    common = set(_all_sources(members[0], stale))
    for one in members[1:]:
        common &= set(_all_sources(one, stale))
    models = (path for path in common if os.path.basename(os.path.dirname(path)) not in settings.no_models)
    return sorted(os.path.basename(path) for path in models if os.path.basename(path) != "__init__.py")


def _all_sources(start: StaleFile, stale: Mapping[str, StaleFile]) -> Iterator[str]:
    todo, seen = [start], {start.path}
    while todo:
        for source in todo.pop().sources:
            yield source
            if source in stale and source not in seen:
                seen.add(source)
                todo.append(stale[source])


def _diagnose(
    kind: str,
    members: Sequence[StaleFile],
    found: Mapping[str, Sequence[FileChange]],
    files: int,
    shared: Sequence[str],
    settings: Settings,
) -> Finding:
    """The finding about a group."""
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
