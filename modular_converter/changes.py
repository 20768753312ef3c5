"""What git knows about files: which have changed since a commit, and which modular files that affects."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from modular_converter.dependencies import modular_of, required_files
from modular_converter.diagnostics import ConversionError
from modular_converter.placement import target_of
from modular_converter.source.library import Library, models_folder_of


SECONDS = 60
"""How long one call of git may take."""
NAMED = 3
"""Files that a reason names; the rest are counted."""
SETTINGS_FILES = frozenset({"pyproject.toml", "ruff.toml", ".ruff.toml"})
_OF_A_HOOK = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"}
)
"""Variables that git sets for its hooks; they would lead it away from the folder that is asked about."""
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-renames", "--ignore-submodules=dirty")
"""Options of `git diff` that keep it from running programs, also those of submodules."""
_SAFE = ("-c", "core.fsmonitor=false", "-c", "log.showSignature=false")


class GitError(Exception):
    """Raised when git is missing, refuses, or takes too long; the message is for people."""


@dataclass(frozen=True)
class Repository:
    """A git work tree. It is only read, and nothing that it configures is run."""

    top: str

    def changed_since(self, ref: str) -> frozenset[str]:
        """The files that differ from a commit, removed and untracked ones included, as absolute paths.

        Raises `GitError` for a commit that there is not.
        """
        commit = self.commit(ref)
        diff = _git(self.top, "diff", *_PLAIN, "--name-only", "-z", commit, "--", options=_without_filters(self.top))
        untracked = _git(self.top, "ls-files", "--others", "--exclude-standard", "-z")
        names = filter(None, (diff + untracked).split(b"\0"))
        return frozenset(os.path.join(self.top, *os.fsdecode(name).split("/")) for name in names)

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

    @property
    def is_shallow(self) -> bool:
        """Whether history was cut off when it was cloned."""
        return _git(self.top, "rev-parse", "--is-shallow-repository").strip() == b"true"

    def last_commit(self, path: str) -> str:
        """The commit that last touched a file. Raises `GitError` when there is none, or history was cut off."""
        found = _git(self.top, "log", "-1", "--format=%H", "--", path).decode("ascii").strip()
        if not found or self.is_shallow:
            raise GitError("git does not know when it was last written")
        return found

    def text(self, ref: str, path: str) -> str | None:
        """The text of a file in a commit; None when it is not there, or cannot be read."""
        name = os.path.relpath(path, self.top).replace(os.sep, "/")
        try:
            return _git(self.top, "cat-file", "blob", f"{ref}:{name}").decode("utf-8")
        except (GitError, UnicodeDecodeError):
            return None


def open_repository(folder: str) -> Repository:
    """The work tree that a folder lies in. Raises `GitError` when it lies in none, or git is not installed."""
    top = os.fsdecode(_git(folder, "rev-parse", "--show-toplevel")).rstrip("\n")
    if not top:
        raise GitError("this is not a git work tree")
    return Repository(os.path.abspath(top))


class History:
    """What git can tell of why generated files are out of date. Where it cannot, it says so."""

    def __init__(self, folder: str) -> None:
        self._problem = ""
        while folder != os.path.dirname(folder) and not os.path.isdir(folder):  # of a folder yet to be made
            folder = os.path.dirname(folder)
        try:
            self._repository = open_repository(folder)
            self._changed = _real(self._repository.changed_since("HEAD"))
        except GitError as error:
            self._problem = str(error)

    def explain(self, path: str, new: str, sources: Sequence[str], outdated: Sequence[str]) -> str:
        """Why a generated file is not `new`.

        Args:
            sources: the files that it is made from; `outdated` are those that are found to be out of date themselves.
        """
        if self._problem:
            return _moved(outdated) if outdated else f"cannot tell why ({self._problem})"
        real = os.path.realpath(path)
        moved = sorted({*outdated, *(source for source in sources if os.path.realpath(source) in self._changed)})
        if real not in self._changed:
            return _moved(moved) if moved else self._explain_committed(real, new, sources)
        if moved:
            return f"{_moved(moved)}, and it was itself changed since the last commit"
        if self._repository.text("HEAD", real) == new:
            return "it was edited by hand since the last commit, where it was right"
        return "cannot tell why: it has changed since the last commit, and was not right there"

    def _explain_committed(self, real: str, new: str, sources: Sequence[str]) -> str:
        """Of a file that is as in the last commit, and so is all that it is made from."""
        try:
            commit = self._repository.last_commit(real)
            changed = _real(self._repository.changed_since(commit))
        except GitError as error:
            return f"cannot tell why ({error})"
        moved = [source for source in sources if os.path.realpath(source) in changed]
        if moved:
            return f"{_moved(moved)} since {commit[:8]}, which last wrote it"
        if self._repository.text(f"{commit}^", real) == new:
            return f"it was edited by hand in {commit[:8]}"
        return f"cannot tell why: it was not right in {commit[:8]}, which last wrote it"


def _real(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(os.path.realpath(path) for path in paths)


def _moved(sources: Sequence[str]) -> str:
    named = ", ".join(os.path.basename(source) for source in sources[:NAMED])
    more = f" and {len(sources) - NAMED} more" if len(sources) > NAMED else ""
    return f"what it is made from has changed: {named}{more}"


def touched_since(ref: str, paths: Collection[str], library: Library) -> list[str]:
    """The modular files that what has changed since a commit affects, directly or through others, sorted.

    Raises `ConversionError` when git cannot tell.
    """
    if not paths:
        return []
    try:
        changed = open_repository(os.path.dirname(min(paths))).changed_since(ref)
    except GitError as error:
        from modular_converter.rules import unknown_revision

        raise ConversionError(unknown_revision.diagnose(ref, str(error))) from None
    real = _real(changed)
    return sorted(paths) if _means_all(real, paths, library) else affected(real, paths, library)


def affected(changed: Collection[str], paths: Iterable[str], library: Library) -> list[str]:
    """The modular files that are changed, whose generated files are, or that build on such, however far away."""
    known: dict[str, bool] = {}
    return sorted(path for path in paths if _is_affected(path, changed, library, known))


def _is_affected(start: str, changed: Collection[str], library: Library, known: dict[str, bool]) -> bool:
    """Walk from a file through all that it builds on. `known` holds the answers for the files walked from."""
    seen, waiting = {start}, [start]
    found = False
    while waiting and not found:
        path = waiting.pop()
        if path in known:
            found = known[path]
            continue
        found = os.path.realpath(path) in changed
        needed = {*required_files(path, library), modular_of(path, library.settings)} - seen - {""}
        seen |= needed
        waiting += needed
    known[start] = found or os.path.realpath(start) in changed or _gives(start, changed, library)
    return known[start]


def _gives(modular: str, changed: Collection[str], library: Library) -> bool:
    """Whether a changed file is one that this modular file generates."""
    beside = {os.path.realpath(modular), os.path.realpath(target_of(modular, library.settings))}
    return any(modular_of(path, library.settings) in beside for path in changed)


def _means_all(changed: Collection[str], paths: Collection[str], library: Library) -> bool:
    """Whether settings, the table of model names, or this tool are among what has changed."""
    package = os.path.dirname(os.path.realpath(__file__)) + os.sep
    tables = {
        os.path.realpath(os.path.join(models_folder_of(path), table))
        for path in paths
        for table in library.settings.auto_tables
    }
    return any(
        os.path.basename(path) in SETTINGS_FILES or path in tables or path.startswith(package) for path in changed
    )


def _without_filters(folder: str) -> tuple[str, ...]:
    """Options that switch off what git would run to compare a file: filters that the repository configures."""
    pattern = r"^filter\..*\.(clean|smudge|process|required)$"
    found = _git(folder, "config", "-z", "--name-only", "--get-regexp", pattern, no_match=1)
    names = sorted({os.fsdecode(name) for name in found.split(b"\0") if name})
    if any("=" in name for name in names):
        raise GitError("this repository has a filter whose name holds `=`, which cannot be switched off")
    return tuple(
        option for name in names for option in ("-c", f"{name}={'false' if name.endswith('.required') else ''}")
    )


def _git(folder: str, *arguments: str, options: Sequence[str] = (), no_match: int = 0) -> bytes:
    """What git prints, in the C locale, taking no locks and fetching nothing. Raises `GitError`.

    Args:
        options: those of git itself.
        no_match: the exit code that means that there is nothing to print.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OF_A_HOOK}
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    command = ["git", "-C", folder, *_SAFE, *options, *arguments]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
    except OSError as error:
        raise GitError(f"git could not be started: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git took more than {SECONDS} seconds") from None
    if done.returncode not in (0, no_match):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise GitError(said[0].removeprefix("fatal: ") if said else f"git ended with exit code {done.returncode}")
    return done.stdout
