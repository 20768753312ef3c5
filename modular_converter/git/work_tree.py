"""Git work trees, which are only read: nothing that they configure is run, no lock is taken, nothing is fetched. And the files
of a commit, and sets of changed paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from modular_converter.files.read import is_link, program_on_path
from modular_converter.settings.disk import NO_FOLLOW, is_below, read_regular, repository_above


MOST_BYTES = 1 << 28
"""A larger file counts as changed, and is not read."""
_SUBMODULE = b"160000"
_LINK_MODE = b"120000"


class Snapshot:
    """The files of a commit, compared with those on disk by their content.

    The index, attributes, filters, ignore rules and times are not used: each of them can hide a change.
    """

    def __init__(self, top: str, listed: bytes) -> None:
        """`listed` is the output of `git ls-tree -r -z`, with names relative to the folder `top`."""
        self._top = os.path.join(top, "")
        self._recorded: dict[str, tuple[bytes, str]] = {}
        self._names: dict[str, list[str]] = {}
        self._known: dict[str, bool] = {}
        for entry in listed.split(b"\0"):
            facts, _, name = entry.partition(b"\t")
            if name and not facts.startswith(_SUBMODULE):
                mode, _, blob = facts.split()
                path = self._top + os.fsdecode(name).replace("/", os.sep)
                self._recorded[path] = mode, blob.decode("ascii")
                folder, _, last = path.rpartition(os.sep)
                self._names.setdefault(folder, []).append(last)

    def has_files_in(self, folder: str) -> bool:
        """Whether files of the commit stand directly in a folder, given by its real path."""
        return folder in self._names

    def changes_in(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        """The files of wanted names directly in a folder, given by its real path, that were changed, added or removed."""
        names = set(self._names.get(folder, ()))
        with contextlib.suppress(OSError):  # it is gone, or the search for models reports it
            names.update(os.listdir(folder))
        places = (os.path.join(folder, name) for name in sorted(names) if wanted(name))
        yield from (place for place in places if self.differs(place) or self._leads_to_change(place))

    def changes_below(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        """The same in a folder and in all those below it."""
        folders = {one for one in (folder, *self._names) if is_below(one, folder)}
        folders.update(one for one, _, _ in os.walk(folder) if os.path.basename(one) != "__pycache__")
        for one in sorted(folders):
            yield from self.changes_in(one, wanted)

    def blob(self, place: str) -> str:
        """The name that git gives the regular file at a place; "" where the commit has none. See `differs`."""
        mode, name = self._recorded.get(place, (_LINK_MODE, ""))
        return "" if mode == _LINK_MODE else name

    def differs(self, place: str) -> bool:
        """Whether a file, or a link itself, has changed. `place` is a path whose folder is a real path."""
        if place not in self._known:
            recorded = self._recorded.get(place)
            self._known[place] = (
                os.path.lexists(place) if recorded is None else _recorded_content(place, *recorded) is None
            )
        return self._known[place]

    def __contains__(self, path: str) -> bool:
        """Whether a path in the work tree has changed: its own file or link, or the file that a link leads to."""
        place = through_folder_links(path)
        return place.startswith(self._top) and (self.differs(place) or self._leads_to_change(place))

    def _leads_to_change(self, place: str) -> bool:
        """Whether a link leads to a file that differs or that is unknown to git."""
        if not is_link(place):
            return False
        target = os.path.realpath(place)
        return not target.startswith(self._top) or self.differs(target)


class Touched:
    """Changed paths, each with everything below it. A link counts as itself and as its target."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._folders: dict[str, str] = {}
        self._below: dict[str, bool] = {}
        self.paths = frozenset(place for path in paths for place in self._places(path))

    def __contains__(self, path: str) -> bool:
        return any(place in self.paths or self._is_below(os.path.dirname(place)) for place in self._places(path))

    def _places(self, path: str) -> tuple[str, str]:
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        place = os.path.join(self._folders[folder], name)
        return place, os.path.realpath(place)

    def _is_below(self, folder: str) -> bool:
        """Whether a folder is, or lies below, one of the paths."""
        if folder not in self._below:
            above = os.path.dirname(folder)
            self._below[folder] = folder in self.paths or (above != folder and self._is_below(above))
        return self._below[folder]


def through_folder_links(path: str) -> str:
    """The path of a file with the links of its folders followed, but not the file's own link."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def blob_name(content: bytes, digits: int) -> str:
    """The name that git gives a content, in a repository whose names have so many hexadecimal digits: 40 or 64."""
    whole = b"blob %d\0%s" % (len(content), content)
    return (
        hashlib.sha256(whole).hexdigest() if digits == 64 else hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    )


def _recorded_content(place: str, mode: bytes, blob: str) -> bytes | None:
    """The content of a file or link on disk, if it is the recorded one."""
    try:
        if mode == _LINK_MODE:
            content = os.fsencode(os.readlink(place))
        else:
            content = read_regular(place, MOST_BYTES, NO_FOLLOW)
    except OSError:
        return None
    return content if blob_name(content, len(blob)) == blob else None


SECONDS = 60
"""Seconds that one call of git may take."""
_KEPT = ("GIT_CONFIG", "GIT_EXEC_PATH", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM")
"""The beginnings of git's variables with the user's own setup. Other variables, which git also sets for its hooks,
would lead it to another folder, index or history.
"""
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",  # no lazy fetch: it runs programs that the repository names
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_SAFE = tuple(
    word
    for setting in (
        "core.fsmonitor=false",
        f"core.hooksPath={os.devnull}",
        f"diff.orderFile={os.devnull}",
        "log.showSignature=false",
        "safe.bareRepository=explicit",
    )
    for word in ("-c", setting)
)
"""Settings that keep git from running programs that a repository names, and from taking a folder for a repository."""
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-renames")
"""Options of `git diff-tree` that keep it from running programs."""
_LINK = b"160000 commit "
"""The mode of a submodule in a tree."""


class GitError(Exception):
    """Raised when git is missing, refuses, or takes too long; the message is for people."""


class GitTimeout(GitError):
    """Raised when git takes too long. A repository could make each call slow, so git is not asked again."""


@dataclass(frozen=True)
class Repository:
    """A git work tree."""

    top: str

    def snapshot(self, commit: str) -> Snapshot:
        """The files of a commit, given by its full name. Those of submodules are not among them."""
        return Snapshot(self.top, run_git(self.top, "ls-tree", "-r", "-z", "--full-tree", commit))

    def changed_in(self, commit: str) -> frozenset[str]:
        """The files that a commit has changed relative to any of its parents."""
        shape = ("-r", "-m", "--root", "--no-commit-id", "--name-only", "-z")
        return self._paths(run_git(self.top, "diff-tree", *_PLAIN, *shape, commit))

    def unignored(self, folders: Collection[str]) -> frozenset[str]:
        """The files below some folders that git does not ignore, links and the tops of other repositories included."""
        names = (self._name(folder) for folder in folders)
        shape = ("-z", "--cached", "--others", "--exclude-standard", "--full-name")
        return self._paths(run_git(self.top, "ls-files", *shape, "--", *names))

    def _paths(self, names: bytes) -> frozenset[str]:
        found = (os.fsdecode(name).rstrip("/") for name in names.split(b"\0") if name)
        return frozenset(os.path.join(self.top, *name.split("/")) for name in found)

    def commit(self, ref: str) -> str:
        """The commit that a name stands for. Raises `GitError` when there is none."""
        if "\0" in ref:
            raise GitError("no commit has a NUL character in its name")
        try:
            found = run_git(self.top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
        except GitError:
            reason = f"git knows no commit `{ref}`"
            if self.is_shallow:
                reason += "; this is a shallow clone, fetch more history (`git fetch --unshallow`)"
            raise GitError(reason) from None
        return found.decode("ascii").strip()

    def link(self, commit: str, path: str) -> str:
        """The commit of a submodule that a commit records; "" for a path that is no submodule there."""
        found = run_git(self.top, "ls-tree", commit, "--", self._name(path))
        return found[len(_LINK) :].split()[0].decode("ascii") if found.startswith(_LINK) else ""

    @property
    def is_shallow(self) -> bool:
        """Whether history was cut off when it was cloned."""
        return run_git(self.top, "rev-parse", "--is-shallow-repository").strip() == b"true"

    def commits_of(self, path: str, at_most: int) -> list[str]:
        """The commits that have touched a file, newest first, as far back as history was cloned."""
        found = run_git(self.top, "log", f"-{at_most}", "--format=%H", "--", self._name(path))
        return found.decode("ascii").split()

    def first_with(self, text: str, path: str, commits: Sequence[str]) -> int:
        """The position of the first commit in which a file has this text; -1 where none has."""
        name = self._name(path)
        if "\n" in name:  # git could not be asked
            return -1
        content = text.encode("utf-8", "surrogatepass")
        blobs = {blob_name(content, digits) for digits in (40, 64)}
        asked = "".join(f"{commit}:{name}\n" for commit in commits)
        output = run_git(self.top, "cat-file", "--batch-check=%(objectname)", given=os.fsencode(asked))
        lines = output.decode("utf-8", "surrogateescape").split("\n")
        return next((place for place, line in enumerate(lines) if line in blobs), -1)

    def texts(self, commit: str, folder: str, suffix: str, at_most: int) -> list[tuple[str, bytes]]:
        """The regular files of a commit below a folder, by name, with their contents.

        Args:
            commit: its full name.
            folder: below the top, with `/`; "" for the top.
            suffix: the end of the names.
            at_most: the size in bytes of the largest that is read.
        """
        below = [folder] if folder else []
        listed = run_git(self.top, "ls-tree", "-r", "-z", "-l", "--full-tree", commit, "--", *below)
        wanted: list[tuple[str, bytes, str]] = []
        for entry in listed.split(b"\0"):
            facts, _, path = entry.partition(b"\t")
            if path.endswith(os.fsencode(suffix)):
                mode, kind, blob, length = facts.split()
                if kind == b"blob" and mode != b"120000" and int(length) <= at_most:
                    wanted.append((os.fsdecode(path), mode, blob.decode("ascii")))
        # Reading the work tree takes a third of the time that git takes.
        places = ((os.path.join(self.top, *name.split("/")), mode, blob) for name, mode, blob in wanted)
        here = [_recorded_content(*place) for place in places]
        others = self.contents([blob for (_, _, blob), content in zip(wanted, here) if content is None])
        return [(name, next(others) if content is None else content) for (name, _, _), content in zip(wanted, here)]

    def contents(self, blobs: Sequence[str]) -> Iterator[bytes]:
        """The contents of files, by the names that git gives them, read at once."""
        output = run_git(self.top, "cat-file", "--batch", given="".join(f"{blob}\n" for blob in blobs).encode("ascii"))
        place = 0
        for _ in blobs:
            start = output.index(b"\n", place) + 1
            end = start + int(output[place : start - 1].split()[2])
            yield output[start:end]
            place = end + 1

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
                self._opened[marked] = open_repository(marked)
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


class UnignoredFiles:
    """The paths below folders that git does not ignore, for `Listings`; git is asked once for each folder."""

    def __init__(self) -> None:
        self._trees = WorkTrees()
        self._known: dict[str, frozenset[str] | None] = {}
        self._given_up = False

    def __call__(self, folder: str, names: Sequence[str]) -> frozenset[str] | None:
        """The paths below folders of these names in a folder; None where git cannot tell."""
        if folder not in self._known:
            self._known[folder] = None if self._given_up else self._ask(folder, names)
        return self._known[folder]

    def _ask(self, folder: str, names: Sequence[str]) -> frozenset[str] | None:
        real = os.path.realpath(folder)
        try:
            found = self._trees.of(real).unignored([os.path.join(real, name) for name in names])
        except GitError as error:
            self._given_up = isinstance(error, GitTimeout)
            return None
        return frozenset(os.path.join(folder, os.path.relpath(path, real)) for path in found)


def open_repository(folder: str) -> Repository:
    """The work tree whose top is a folder. Raises `GitError` when there is none, or git is not installed."""
    top = os.path.abspath(os.fsdecode(run_git(folder, "rev-parse", "--show-toplevel")).rstrip("\n"))
    if os.path.realpath(top) != os.path.realpath(folder):  # by `core.worktree`
        raise GitError(f"its work tree is {top}")
    return Repository(top)


def run_git(folder: str, *arguments: str, given: bytes = b"", codes: Collection[int] = (0,)) -> bytes:
    """The output of git, in the C locale, without locks and without fetching. Raises `GitError`.

    Args:
        folder: where it is started.
        arguments: its command line.
        given: what it reads from its standard input.
        codes: the exit codes that are no error.
    """
    program = program_on_path("git", repository_above(folder))
    if not program:
        raise GitError("git could not be started: it is in no absolute folder of PATH outside of the repository")
    kept = {name: os.environ[name] for name in os.environ if name[:4] != "GIT_" or name.startswith(_KEPT)}
    environment = kept | _ENVIRONMENT
    command = [program, "-C", folder, *_SAFE, *arguments]
    try:
        done = subprocess.run(command, env=environment, input=given, capture_output=True, timeout=SECONDS, check=False)
    except OSError as error:
        raise GitError(f"git could not be started: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise GitTimeout(f"git took more than {SECONDS} seconds") from None
    if done.returncode not in codes:
        error_lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(
            error_lines[0].removeprefix("fatal: ") if error_lines else f"git ended with exit code {done.returncode}"
        )
    return done.stdout
