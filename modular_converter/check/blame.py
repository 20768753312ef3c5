"""Why a generated file is out of date, if git can prove a reason, and the warnings of models that nobody works on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from modular_converter.files.read import is_installed
from modular_converter.files.write import path_of_generated
from modular_converter.findings import Conversion, Finding, first_of
from modular_converter.git.work_tree import (
    GitError,
    GitTimeout,
    Repository,
    Snapshot,
    Touched,
    WorkTrees,
    through_folder_links,
)
from modular_converter.settings.values import Settings


NAMED = 3
"""Files that a cause names; the rest are counted."""
COMMITS = 20
"""The number of commits of a file that are searched for its last correct version."""


class Cause(NamedTuple):
    """The reason why a generated file is out of date."""

    text: str
    """A part of a sentence, or the sentence that git cannot tell."""
    is_by_hand: bool = False
    """Whether git proves that the file was right and was edited."""
    is_in_sources: bool = False
    """Whether a file that it is made from has changed since it was written."""


class CommitHistory:
    """Git's history of the generated files and of the files that they are made from."""

    def __init__(self) -> None:
        self._trees = WorkTrees()
        self._since: dict[tuple[str, str], Snapshot] = {}
        self._given_up = ""

    def cause(self, path: str, new: str, sources: Collection[str], outdated: Collection[str]) -> Cause:
        """The reason why a generated file is out of date.

        Args:
            new: the text that it should have.
            sources: the files that it is made from, except `outdated`.
            outdated: the generated files that it is made from and that are out of date themselves.
        """
        stale = _made_from((), sorted(outdated))
        try:
            if self._given_up:
                raise GitError(self._given_up)
            repository = self._trees.of(os.path.dirname(path))
            own = sorted(source for source in sources if not is_installed(source))
            return self._cause(repository, path, new, own, sorted(outdated))
        except GitError as error:
            if isinstance(error, GitTimeout):
                self._given_up = str(error)
            return Cause(stale or f"cannot tell why ({error})")

    def committed(self, path: str) -> str | None:
        """The text of a file in the last commit; None where git cannot tell."""
        with contextlib.suppress(GitError, UnicodeDecodeError):
            repository = self._trees.of(os.path.dirname(path))
            blob = self._snapshot(repository, "HEAD").blob(through_folder_links(path))
            return next(repository.contents([blob])).decode() if blob else None
        return None

    def _cause(
        self, repository: Repository, path: str, new: str, sources: Sequence[str], outdated: Sequence[str]
    ) -> Cause:
        last, own = self._snapshot(repository, "HEAD"), through_folder_links(path)
        is_changed, file = path in last, own if last.differs(own) else os.path.realpath(own)
        if is_changed and repository.first_with(new, file, ["HEAD"]) == 0:  # a proof, whatever else has changed
            return Cause("it was edited by hand since the last commit, where it was right", is_by_hand=True)
        moved = self._moved(sources)
        from_sources = _made_from(moved, outdated)
        if from_sources and not is_changed:
            return Cause(from_sources, is_in_sources=bool(moved))
        commits = repository.commits_of(file, COMMITS)
        if by_hand := self._edited_by_hand(repository, file, new, sources, commits, is_changed=is_changed):
            return Cause(by_hand, is_by_hand=True)
        if from_sources:
            text = f"{from_sources}, and it was itself changed since the last commit"
            return Cause(text, is_in_sources=bool(moved))
        is_unknown = is_changed and (not commits or repository.is_shallow)
        since = None if is_unknown else self._since_last_commit(repository, sources, commits)
        if is_changed and (since is None or not since.is_in_sources):
            return Cause("cannot tell why: it has changed since the last commit, and was not right there")
        assert since is not None
        return (
            since._replace(text=f"{since.text}, and it was itself changed since the last commit")
            if is_changed
            else since
        )

    def _edited_by_hand(
        self,
        repository: Repository,
        file: str,
        new: str,
        sources: Sequence[str],
        commits: Sequence[str],
        *,
        is_changed: bool,
    ) -> str:
        """The commit that made a correct file wrong and changed none of its sources; "" if there is no such commit."""
        right = repository.first_with(new, file, commits)
        if right < 1:
            return ""
        commit = commits[right - 1]
        changed = Touched(repository.changed_in(commit))
        if any(source in changed for source in sources):
            return ""
        again = ", and again since" if right > 1 or is_changed else ""
        return f"it was edited by hand in {commit[:8]}{again}"

    def _since_last_commit(self, repository: Repository, sources: Sequence[str], commits: Sequence[str]) -> Cause:
        """The sources that have changed since the last commit of the generated file."""
        if not commits or repository.is_shallow:
            raise GitError("git does not know when it was last written")
        last = commits[0]
        since = self._snapshot(repository, last)
        if moved := [source for source in sources if source in since]:
            return Cause(f"{_made_from(moved, ())} since {last[:8]}, which last wrote it", is_in_sources=True)
        return Cause(f"cannot tell why: it was not right in {last[:8]}, which last wrote it")

    def _moved(self, sources: Sequence[str]) -> list[str]:
        """The sources that differ from the last commit of the work tree that each lies in."""
        moved = []
        for source in sources:
            try:
                if source in self._snapshot(self._trees.of(os.path.dirname(source)), "HEAD"):
                    moved.append(source)
            except GitTimeout:
                raise
            except GitError:  # it is installed, or lies in no work tree
                continue
        return moved

    def _snapshot(self, repository: Repository, commit: str) -> Snapshot:
        key = repository.top, commit
        if key not in self._since:
            self._since[key] = repository.snapshot(repository.commit(commit))
        return self._since[key]


def _made_from(moved: Sequence[str], outdated: Sequence[str]) -> str:
    """The cause, if it lies in the sources of a file; "" if none of them has changed."""
    parts = [f"has changed: {_named(moved)}"] if moved else []
    parts += [f"is out of date itself: {_named(outdated)}"] if outdated else []
    return f"what it is made from {' and '.join(parts)}" if parts else ""


def _named(paths: Sequence[str]) -> str:
    return first_of([os.path.basename(path) for path in paths], NAMED)


def warnings_of_untouched(
    conversions: Iterable[Conversion], different: Collection[str], settings: Settings, ref: str
) -> frozenset[Finding]:
    """The warnings of conversions whose modular and generated files are those of a commit.

    Args:
        different: the modular files whose generated files differ.
        ref: the commit. Where git knows none, nothing counts as untouched.
    """
    trees = WorkTrees()
    snapshots: dict[Repository, Snapshot] = {}

    def is_touched(conversion: Conversion) -> bool:
        places = [conversion.path, *(path_of_generated(path, settings) for path in conversion.files)]
        try:
            tree = trees.of(os.path.dirname(conversion.path))
            if tree not in snapshots:
                snapshots[tree] = tree.snapshot(tree.commit(ref))
        except GitError:
            return True
        return any(place in snapshots[tree] for place in places)

    found = set[Finding]()
    for conversion in conversions:
        warnings = [finding for finding in conversion.findings if not finding.is_error]
        if warnings and conversion.path not in different and not is_touched(conversion):
            found.update(warnings)
    return frozenset(found)
