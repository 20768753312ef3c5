"""Git work trees, which are only read: nothing that they configure is run, no lock is taken, nothing is fetched."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from modular_converter.settings.regular_file import read_regular


SECONDS = 60
"""Seconds that one call of git may take."""
_OF_A_HOOK = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"}
)
"""Variables that git sets for its hooks; with them, git would look at another folder."""
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty")
"""Options of `git diff` that keep it from running programs, also those of submodules."""
_SAFE = tuple(
    word
    for setting in (
        "core.fsmonitor=false",
        f"core.hooksPath={os.devnull}",
        "core.splitIndex=false",
        "core.untrackedCache=false",
        "log.showSignature=false",
    )
    for word in ("-c", setting)
)
"""Settings that keep git from running hooks and other programs, also in submodules, and from writing beside an index."""
MOST_INDEX_BYTES = 1 << 30
_LINK = b"160000 commit "
"""How a tree tells of a submodule."""


class GitError(Exception):
    """Raised when git is missing, refuses, or takes too long; the message is for people."""


@dataclass(frozen=True)
class Repository:
    """A git work tree."""

    top: str

    def changed_since(self, ref: str) -> frozenset[str]:
        """What differs from a commit, removed and untracked files included, as absolute paths.

        A submodule that is at another commit, and an untracked repository, count as one path, that of their folder;
        what has changed in them since their own commits is theirs to tell. Raises `GitError` for an unknown commit.
        """
        commit = self.commit(ref)
        options = _without_filters(self.top)
        with self._copied_index() as index:
            diff = _git(self.top, "diff", *_PLAIN, "--name-only", "-z", commit, "--", options=options, index=index)
            untracked = _git(self.top, "ls-files", "--others", "--exclude-standard", "-z", index=index)
        return self._paths(diff + untracked)

    @contextlib.contextmanager
    def _copied_index(self) -> Iterator[str]:
        """A temporary copy of the index: `git diff` writes what it has learned of the files' times into its index.

        The copy keeps the time of the original. A file that is as young as the index may have changed unnoticed, so
        git compares its content; beside a younger copy every file would look old enough to be trusted.
        """
        with tempfile.TemporaryDirectory(prefix="modular-converter-index-", ignore_cleanup_errors=True) as folder:
            copy = os.path.join(folder, "index")
            printed = os.fsdecode(_git(self.top, "rev-parse", "--git-path", "index")).removesuffix("\n")
            path = os.path.join(self.top, printed)
            try:
                written = os.stat(path).st_mtime_ns
                content = read_regular(path, MOST_INDEX_BYTES)
                with open(copy, "wb") as file:
                    file.write(content)
                os.utime(copy, ns=(written, written))
            except FileNotFoundError:
                pass  # nothing was added yet
            except OSError as error:
                raise GitError(f"the index cannot be read: {error.strerror or error}") from None
            yield copy

    def changed_in(self, commit: str) -> frozenset[str]:
        """What a commit has changed against any of its parents."""
        shape = ("-r", "-m", "--root", "--no-commit-id", "--name-only", "-z")
        return self._paths(_git(self.top, "diff-tree", *_PLAIN[:3], *shape, commit))

    def _paths(self, names: bytes) -> frozenset[str]:
        found = (os.fsdecode(name).rstrip("/") for name in names.split(b"\0") if name)
        return frozenset(os.path.join(self.top, *name.split("/")) for name in found)

    def commit(self, ref: str) -> str:
        """The commit that a name stands for. Raises `GitError` when there is none."""
        try:
            found = _git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        except GitError:
            reason = f"git knows no commit `{ref}`"
            if self.is_shallow:
                reason += "; this is a shallow clone, fetch more history (`git fetch --unshallow`)"
            raise GitError(reason) from None
        return found.decode("ascii").strip()

    def link(self, commit: str, path: str) -> str:
        """The commit of a submodule that a commit records; "" for a path that is no submodule there."""
        found = _git(self.top, "ls-tree", commit, "--", self._name(path))
        return found[len(_LINK) :].split()[0].decode("ascii") if found.startswith(_LINK) else ""

    @property
    def is_shallow(self) -> bool:
        """Whether history was cut off when it was cloned."""
        return _git(self.top, "rev-parse", "--is-shallow-repository").strip() == b"true"

    def commits_of(self, path: str, at_most: int) -> list[str]:
        """The commits that have touched a file, newest first, as far back as history was cloned."""
        found = _git(self.top, "log", f"-{at_most}", "--format=%H", "--", self._name(path))
        return found.decode("ascii").split()

    def first_with(self, text: str, path: str, commits: Sequence[str]) -> int:
        """The position of the first commit in which a file has this text; -1 where none has."""
        name = self._name(path)
        if "\n" in name:  # git could not be asked
            return -1
        content = text.encode("utf-8", "surrogatepass")
        content = b"blob %d\0%s" % (len(content), content)
        blobs = {hashlib.sha1(content, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()}
        asked = "".join(f"{commit}:{name}\n" for commit in commits)
        told = _git(self.top, "cat-file", "--batch-check=%(objectname)", given=os.fsencode(asked))
        lines = told.decode("utf-8", "surrogateescape").split("\n")
        return next((place for place, line in enumerate(lines) if line in blobs), -1)

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self.top).replace(os.sep, "/")


class WorkTrees:
    """The work trees that files lie in, each opened once."""

    def __init__(self) -> None:
        self._marked: dict[str, str] = {}
        self._opened: dict[str, Repository | GitError] = {}

    def of(self, folder: str) -> Repository:
        """The innermost work tree that a folder, which need not exist, lies in. Raises `GitError` if there is none."""
        folder = os.path.realpath(folder)
        while folder != os.path.dirname(folder) and not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        marked = self._marked_above(folder)
        if marked not in self._opened:
            try:
                self._opened[marked] = open_repository(folder)
            except GitError as error:
                self._opened[marked] = error
        found = self._opened[marked]
        if isinstance(found, GitError):
            raise found
        return found

    def _marked_above(self, folder: str) -> str:
        """The nearest folder with a `.git`, at or above a folder, without a call of git; the topmost folder if none has."""
        if folder not in self._marked:
            above = os.path.dirname(folder)
            ends = above == folder or os.path.lexists(os.path.join(folder, ".git"))
            self._marked[folder] = folder if ends else self._marked_above(above)
        return self._marked[folder]


class Touched:
    """Changed paths, each with everything below it. A link counts as itself and as its target."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._folders: dict[str, str] = {}
        self._below: dict[str, bool] = {}
        self.paths = frozenset(place for path in paths for place in self._places(path))

    def __contains__(self, path: str) -> bool:
        return any(place in self.paths or self._is_below(os.path.dirname(place)) for place in self._places(path))

    def place_of(self, path: str) -> str:
        """The path of a file with the links of its folders followed, but not the file's own link."""
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)

    def _places(self, path: str) -> tuple[str, str]:
        place = self.place_of(path)
        return place, os.path.realpath(place)

    def _is_below(self, folder: str) -> bool:
        """Whether a folder is, or lies below, one of the paths."""
        if folder not in self._below:
            above = os.path.dirname(folder)
            self._below[folder] = folder in self.paths or (above != folder and self._is_below(above))
        return self._below[folder]


def open_repository(folder: str) -> Repository:
    """The work tree that a folder lies in. Raises `GitError` when it lies in none, or git is not installed."""
    top = os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).rstrip("\n")
    if not top:
        raise GitError("this is not a git work tree")
    return Repository(os.path.abspath(top))


def _without_filters(folder: str) -> tuple[str, ...]:
    """Options that switch off the filters which the repository configures and git would run to compare a file."""
    pattern = r"^filter\..*\.(clean|smudge|process|required)$"
    found = _git(folder, "config", "-z", "--name-only", "--get-regexp", pattern, no_match=1)
    names = sorted({os.fsdecode(name) for name in found.split(b"\0") if name})
    if any("=" in name for name in names):
        raise GitError("this repository has a filter whose name holds `=`, which cannot be switched off")
    return tuple(
        option for name in names for option in ("-c", f"{name}={'false' if name.endswith('.required') else ''}")
    )


def _git(
    folder: str,
    *arguments: str,
    options: Sequence[str] = (),
    no_match: int = 0,
    given: bytes | None = None,
    index: str = "",
) -> bytes:
    """What git prints, in the C locale, taking no locks and fetching nothing. Raises `GitError`.

    Args:
        options: those of git itself.
        no_match: the exit code that means that there is nothing to print.
        given: what git reads from its standard input.
        index: a file to use in place of the repository's index.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    environment["GIT_LITERAL_PATHSPECS"] = "1"
    if index:
        environment["GIT_INDEX_FILE"] = index
    command = ["git", "-C", folder, *_SAFE, *options, *arguments]
    try:
        done = subprocess.run(
            command, env=environment, input=given or b"", capture_output=True, timeout=SECONDS, check=False
        )
    except OSError as error:
        raise GitError(f"git could not be started: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git took more than {SECONDS} seconds") from None
    if done.returncode not in (0, no_match):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(said[0].removeprefix("fatal: ") if said else f"git ended with exit code {done.returncode}")
    return done.stdout


__all__ = ["GitError", "Repository", "Touched", "WorkTrees", "open_repository"]
