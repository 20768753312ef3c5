"""A conflict in a generated file, resolved as git asks for it: the file is converted from the merged modular files.

git calls a merge driver with three versions of one file, before anything else is merged. So the merge that is under way
is made once more, in memory (`git merge-tree`), and the file is converted from its result. Which commits are merged is
proven by the versions: they have to be those of the three files.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from modular_converter.convert.batch import Run
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.git.affected import sources_of
from modular_converter.git.snapshot import blob_name
from modular_converter.git.work_tree import Repository, run_git
from modular_converter.settings.layout import is_modular, modular_of
from modular_converter.settings.load import load_settings_of
from modular_converter.settings.values import Settings


WITHIN = "MODULAR_CONVERTER_MERGES"
"""Set while a merge is made once more, in which the driver has nothing to do."""
CONFIGURATION = (".toml", ".cfg")
MOST_COMMITS = 200
"""Commits that touch a file among which those that are merged are looked for."""
_HEAD = re.compile(r"GITHEAD_([0-9a-f]{40,64})")


class Unresolved(Exception):
    """Raised when a file cannot be resolved; the message says what to do."""


class _Sides(NamedTuple):
    """A merge into HEAD: of a commit, or of a change since a base."""

    theirs: str
    base: str
    """"" for the common ancestor of both."""


def resolved(repository: Repository, path: str, base: bytes, theirs: bytes) -> str:
    """The text of a generated file after the merge that is under way.

    Args:
        repository: the work tree.
        path: the file, below its top, with `/`.
        base: the file in the common ancestor.
        theirs: the file on the other side.

    Raises `Unresolved`.
    """
    texts = {_converted(repository, tree, path) for tree in dict.fromkeys(_trees(repository, path, base, theirs))}
    if not texts:
        raise Unresolved("cannot tell which commits are merged; run `check-modular-conversion --write`")
    if len(texts) > 1:
        raise Unresolved("several commits have these versions; run `check-modular-conversion --write`")
    return texts.pop()


def _trees(repository: Repository, path: str, base: bytes, theirs: bytes) -> Iterator[str]:
    """The merged tree of each merge into HEAD that has these versions of the file."""
    failures = []
    for sides in _candidates(repository, path, base, theirs):
        try:
            yield _merged(repository, sides, path)
        except Unresolved as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _candidates(repository: Repository, path: str, base: bytes, theirs: bytes) -> Iterator[_Sides]:
    named = [found[1] for name in os.environ if (found := _HEAD.fullmatch(name))]
    ours = repository.commit("HEAD")
    for commit in named:
        if commit != ours and _has(repository, commit, path, theirs):
            yield _Sides(commit, "")
    if named:
        return
    output = run_git(repository.top, "log", "--all", f"-{MOST_COMMITS}", "--format=%H %P", "--", path)
    for line in output.decode("ascii").splitlines():
        commit, *parents = line.split()
        for parent in parents[:1]:
            for one, other in ((parent, commit), (commit, parent)):  # picked, or reverted
                if _has(repository, one, path, base) and _has(repository, other, path, theirs):
                    yield _Sides(other, one)


def _has(repository: Repository, commit: str, path: str, content: bytes) -> bool:
    return _object(repository, f"{commit}:{path}") in {blob_name(content, digits) for digits in (40, 64)}


def _object(repository: Repository, named: str) -> str:
    """The full name of an object; "" where there is none."""
    output = run_git(repository.top, "rev-parse", "--verify", "--quiet", "--end-of-options", named, codes=(0, 1))
    return output.decode("ascii").strip()


def _merged(repository: Repository, sides: _Sides, path: str) -> str:
    """The tree that the merge gives. Raises `Unresolved` where what the file is made from conflicts."""
    ours, theirs = repository.commit("HEAD"), sides.theirs
    if sides.base:  # two commits whose common ancestor is the base
        base = _commit(repository, sides.base)
        ours, theirs = _commit(repository, ours, base), _commit(repository, theirs, base)
    os.environ[WITHIN] = "1"
    output = run_git(
        repository.top, "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs, codes=(0, 1)
    )
    del os.environ[WITHIN]
    tree, *conflicted = output.decode("utf-8", "surrogateescape").rstrip("\0").split("\0")
    settings = load_settings_of([os.path.join(repository.top, path)])
    written = [name for name in conflicted if name and not _is_generated(repository, tree, name, settings)]
    if wrong := [name for name in written if name.endswith((".py", *CONFIGURATION))]:
        listed = ", ".join(sorted(wrong)[:3])
        raise Unresolved(f"resolve {listed} first, then run `check-modular-conversion --write`")
    return tree


def _is_generated(repository: Repository, tree: str, name: str, settings: Settings) -> bool:
    """Whether a tree has the modular file of a file."""
    modular = modular_of(os.path.join(repository.top, *name.split("/")), settings)
    if not modular:
        return False
    return _object(repository, f"{tree}:{os.path.relpath(modular, repository.top).replace(os.sep, '/')}") != ""


def _commit(repository: Repository, tree: str, *parents: str) -> str:
    """A commit of a tree that no branch names; `git gc` removes it."""
    who = ("-c", "user.name=merge", "-c", "user.email=merge@localhost")
    above = [word for one in parents for word in ("-p", one)]
    return (
        run_git(repository.top, *who, "commit-tree", f"{tree}^{{tree}}", *above, "-m", "merge").decode("ascii").strip()
    )


def _converted(repository: Repository, tree: str, path: str) -> str:
    """The file as a conversion of a tree gives it. Raises `Unresolved`."""
    with tempfile.TemporaryDirectory() as folder:
        top = os.path.realpath(folder)
        os.mkdir(os.path.join(top, ".git"))  # the project ends here
        for suffix in (".py", *CONFIGURATION):
            for name, content in repository.texts(tree, "", suffix, 1 << 24):
                target = os.path.join(top, *name.split("/"))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as file:
                    file.write(content)
        generated = os.path.join(top, *path.split("/"))
        try:
            settings = replace(load_settings_of([generated]), project_folder=repository.top)
            library = Library(settings)
            modular = modular_of(generated, settings)
            needed = [one for one in sources_of(modular, library) if is_modular(one, settings)]
            made = Run(settings, workers=1).convert([one for one in needed if library.exists(one)])
        except ConversionError as error:
            raise Unresolved(f"it cannot be converted: {error.findings[0].message}") from None
    result = next((one for one in made if one.path == modular), None)
    if result is None or generated not in result.files:
        reason = next((f"{one.code} {one.message}" for one in result.findings if one.is_error), "") if result else ""
        raise Unresolved(f"it is not converted from {os.path.basename(modular) or path}: {reason}".rstrip(": "))
    return result.files[generated]
