"""Why a generated file is not what it should be, as far as git can prove it."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from modular_converter.git.work_tree import GitError, Repository, Touched, WorkTrees


NAMED = 3
"""Files that a reason names; the rest are counted."""
COMMITS = 20
"""How far back a file is followed to the commit in which it was right."""


class History:
    """What git can tell of why generated files are out of date. Where it cannot, it says so."""

    def __init__(self) -> None:
        self._trees = WorkTrees()
        self._changed: dict[tuple[str, str], Touched] = {}

    def explain(self, path: str, new: str, sources: Sequence[str], outdated: Collection[str]) -> str:
        """Why a generated file is not `new`.

        Args:
            sources: the files that it is made from; `outdated` are those that are found to be out of date themselves.
        """
        stale = sorted(outdated)
        fresh = sorted(source for source in sources if source not in outdated)
        try:
            repository = self._trees.of(os.path.dirname(path))
            changed = self._since(repository, "HEAD")
            own = changed.place_of(path)
            real = own if own in changed.paths else os.path.realpath(own)
            if path not in changed:
                return self._explain_committed(repository, real, new, fresh, stale)
            if repository.text("HEAD", real) == new:  # that proves it, whatever else has changed
                return "it was edited by hand since the last commit, where it was right"
            if edited := self._edited_by_hand(repository, real, new, fresh, last=0):
                return edited
            reason = _made_from(self._moved(fresh), stale)
        except GitError as error:
            return _made_from((), stale) or f"cannot tell why ({error})"
        if reason:
            return f"{reason}, and it was itself changed since the last commit"
        return "cannot tell why: it has changed since the last commit, and was not right there"

    def _explain_committed(
        self, repository: Repository, real: str, new: str, fresh: Sequence[str], stale: Sequence[str]
    ) -> str:
        """Of a file that is as in the last commit."""
        if reason := _made_from(self._moved(fresh), stale):
            return reason
        if edited := self._edited_by_hand(repository, real, new, fresh, last=1):
            return edited
        commits = repository.commits_of(real, 1)
        if not commits or repository.is_shallow:
            raise GitError("git does not know when it was last written")
        since = self._since(repository, commits[0])
        moved = [source for source in fresh if source in since]
        if moved:
            return f"{_made_from(moved, ())} since {commits[0][:8]}, which last wrote it"
        return f"cannot tell why: it was not right in {commits[0][:8]}, which last wrote it"

    def _edited_by_hand(
        self, repository: Repository, real: str, new: str, sources: Sequence[str], *, last: int
    ) -> str:
        """That a commit made a file wrong which left all alone that the file is made from; "" where none is known.

        Args:
            last: the number of commits of the file since it was right, when no edit followed that one.
        """
        commits = repository.commits_of(real, COMMITS)
        right = repository.first_with(new, real, commits)
        if right < 1:
            return ""
        commit = commits[right - 1]
        changed = Touched(repository.changed_in(commit))
        if any(source in changed for source in sources):
            return ""
        return f"it was edited by hand in {commit[:8]}" + (", and again since" if right > last else "")

    def _moved(self, sources: Sequence[str]) -> list[str]:
        """Those that differ from the last commit of the work tree that each lies in."""
        moved = []
        for source in sources:
            try:
                if source in self._since(self._trees.of(os.path.dirname(source)), "HEAD"):
                    moved.append(source)
            except GitError:  # it is installed, or lies outside
                continue
        return moved

    def _since(self, repository: Repository, ref: str) -> Touched:
        key = repository.top, ref
        if key not in self._changed:
            self._changed[key] = Touched(repository.changed_since(ref))
        return self._changed[key]


def _made_from(moved: Sequence[str], stale: Sequence[str]) -> str:
    """What there is to say of the files that another is made from; "" where none has changed."""
    said = [f"has changed: {_named(moved)}"] if moved else []
    said += [f"is out of date itself: {_named(stale)}"] if stale else []
    return f"what it is made from {' and '.join(said)}" if said else ""


def _named(paths: Sequence[str]) -> str:
    named = ", ".join(os.path.basename(path) for path in paths[:NAMED])
    return f"{named} and {len(paths) - NAMED} more" if len(paths) > NAMED else named
