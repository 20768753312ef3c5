"""A conflict in a generated file, resolved as git asks for it: the file is converted from the merged modular files.

git calls a merge driver with three versions of one file, before anything else is merged. So the merge that is under way
is made once more, in memory (`git merge-tree`), and the file is converted from its result. Which commits are merged is
proven by the versions: they have to be those of the three files.

The set-up is a block of `.gitattributes` that names the generated files, and the driver in the configuration of the
clone, which git never takes from a repository.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from modular_converter.convert.source.library import Library
from modular_converter.files.write import replace_file, told_of_path
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.git.affected import sources_of
from modular_converter.git.work_tree import GitError, Repository, WorkTrees, blob_name, run_git
from modular_converter.rules import stale_files
from modular_converter.settings.load import load_settings_of
from modular_converter.settings.values import Settings, is_modular, modular_of


ATTRIBUTES = ".gitattributes"
START, END = "# modular-converter: generated files", "# modular-converter: end"
NAME = "modular-converter"
COMMAND = f'"{sys.executable}" -m modular_converter merge-driver resolve %O %A %B %P'
_KEYS = {
    f"merge.{NAME}.name": "convert generated files from the merged modular files",
    f"merge.{NAME}.driver": COMMAND,
}


def install_driver(repository: Repository, generated: Collection[str]) -> str:
    """Write the block and the configuration; returns the path of the attributes.

    Args:
        generated: the generated files in it, as absolute paths.

    Raises `ConversionError` or `GitError` where one of them cannot be written.
    """
    path = os.path.join(repository.top, ATTRIBUTES)
    before, _, after = _parts(_read(path))
    _write(path, before + _block(repository, generated) + after)
    for key, value in _KEYS.items():
        run_git(repository.top, "config", "--local", key, value)
    return path


def uninstall_driver(repository: Repository) -> str:
    """Remove both; returns the path of the attributes. Raises as `install_driver`."""
    path = os.path.join(repository.top, ATTRIBUTES)
    before, block, after = _parts(_read(path))
    if block:
        _write(path, before + after)
    if _configured(repository):
        run_git(repository.top, "config", "--local", "--remove-section", f"merge.{NAME}")
    return path


def _configured(repository: Repository) -> str:
    """The driver in the configuration of a clone; "" for none."""
    output = run_git(repository.top, "config", "--local", "--default", "", "--get", f"merge.{NAME}.driver")
    return output.decode("utf-8", "replace").strip()


def missing_setup(folder: str, generated: Collection[str]) -> list[Finding]:
    """The finding about a set-up that the project has, and that this clone lacks or that names other files."""
    try:
        repository = WorkTrees().of(folder)
        path = os.path.join(repository.top, ATTRIBUTES)
        _, block, _ = _parts(_read(path))
        if not block:
            return []
        if block != _block(repository, generated):
            return [stale_files.merge_setup_missing(Location(path), "it does not name the generated files of today")]
        if _configured(repository):
            return []
    except (GitError, OSError):
        return []
    return [stale_files.merge_setup_missing(Location(path), "the driver is not in the configuration of this clone")]


def _block(repository: Repository, generated: Collection[str]) -> str:
    top = os.path.realpath(repository.top)
    names = sorted(os.path.relpath(os.path.realpath(one), top).replace(os.sep, "/") for one in generated)
    lines = (
        f'"/{name}" merge={NAME} linguist-generated' if " " in name else f"/{name} merge={NAME} linguist-generated"
        for name in names
    )
    return "\n".join((START, *lines, END)) + "\n"


def _parts(text: str) -> tuple[str, str, str]:
    """The text before the block, the block, and the text behind it."""
    start, end = text.find(START), text.find(END)
    if start < 0 or end < start:
        return text + ("\n" if text and not text.endswith("\n") else ""), "", ""
    end = text.find("\n", end) + 1 or len(text)
    return text[:start], text[start:end], text[end:]


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _write(path: str, text: str) -> None:
    with told_of_path(path):
        if text:
            replace_file(path, text.encode("utf-8", "surrogateescape"))
        elif os.path.exists(path):
            os.unlink(path)


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


class _Outcome(NamedTuple):
    """A generated file after a merge, or the reason why it has none."""

    text: str
    reason: str = ""


class OutcomeCache(NamedTuple):
    """Remembers the files of a merge, which git asks for one by one, by the name of the merge."""

    read: Callable[[str], Mapping[str, Sequence[str]]]
    write: Callable[[str, Mapping[str, Sequence[str]]], None]


def resolved(repository: Repository, path: str, base: bytes, theirs: bytes, memory: OutcomeCache) -> str:
    """The text of a generated file after the merge that is under way.

    Args:
        path: the file, below its top, with `/`.
        base: the file in the common ancestor.
        theirs: the file on the other side.
        memory: remembers the other files of the merge, which git asks for next.

    Raises `Unresolved`.
    """
    found = {_outcome(repository, path, sides, memory) for sides in _candidates(repository, path, base, theirs)}
    if not found:
        raise Unresolved("cannot tell which commits are merged; run `check-modular-conversion --write`")
    if reasons := sorted(one.reason for one in found if one.reason):
        raise Unresolved(reasons[0])
    if len(found) > 1:
        raise Unresolved("several commits have these versions; run `check-modular-conversion --write`")
    return found.pop().text


def _outcome(repository: Repository, path: str, sides: _Sides, memory: OutcomeCache) -> _Outcome:
    """A file after a merge. All that conflict are converted together, when git asks for the first of them."""
    name = repr((repository.top, repository.commit("HEAD"), *sides))
    known = {one: _Outcome(*values) for one, values in memory.read(name).items()}
    if path not in known:
        known = _merged(repository, sides, path)
        memory.write(name, known)
    return known[path]


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


def _merged(repository: Repository, sides: _Sides, path: str) -> dict[str, _Outcome]:
    """A file and the other generated files that conflict, as a conversion of the merged tree gives them."""
    ours, theirs = repository.commit("HEAD"), sides.theirs
    if sides.base:  # two commits whose common ancestor is the base
        base = _commit(repository, sides.base)
        ours, theirs = _commit(repository, ours, base), _commit(repository, theirs, base)
    output = run_git(
        *(repository.top, "-c", f"merge.{NAME}.driver=false"),  # all files that git would ask for conflict
        *("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs),
        codes=(0, 1),
    )
    tree, *conflicted = output.decode("utf-8", "surrogateescape").rstrip("\0").split("\0")
    settings = load_settings_of([os.path.join(repository.top, path)])
    generated = [name for name in conflicted if name and _is_generated(repository, tree, name, settings)]
    written = sorted(name for name in conflicted if name.endswith((".py", *CONFIGURATION)) and name not in generated)
    return _converted(repository, tree, sorted({path, *generated}), written)


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


def _converted(
    repository: Repository, tree: str, paths: Sequence[str], unmerged: Sequence[str]
) -> dict[str, _Outcome]:
    """Generated files as a conversion of a tree gives them; `unmerged` are the sources in it that conflict."""
    with tempfile.TemporaryDirectory() as folder:
        top = os.path.realpath(folder)
        os.mkdir(os.path.join(top, ".git"))  # the project ends here
        for suffix in (".py", *CONFIGURATION):
            for name, content in repository.texts(tree, "", suffix, 1 << 24):
                target = os.path.join(top, *name.split("/"))
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with open(target, "wb") as file:
                    file.write(content)
        generated = {os.path.join(top, *path.split("/")): path for path in paths}
        wrong = {os.path.join(top, *name.split("/")): name for name in unmerged}
        try:
            settings = replace(load_settings_of([*generated]), project_folder=repository.top)
            return dict(zip(generated.values(), _convert_in(settings, [*generated], wrong)))
        except ConversionError as error:
            return dict.fromkeys(paths, _Outcome("", f"it cannot be converted: {error.findings[0].message}"))


def _convert_in(settings: Settings, generated: Sequence[str], wrong: Mapping[str, str]) -> Iterator[_Outcome]:
    """The outcomes for some files of a folder, in their order. Raises `ConversionError`."""
    # When git asks for the second file of a merge, nothing is converted.
    from modular_converter.convert.batch import Run

    library = Library(settings)
    modular = {path: modular_of(path, settings) for path in generated}
    sources = {path: {path, *sources_of(modular[path], library)} for path in generated if modular[path]}
    needed = {one for found in sources.values() for one in found if is_modular(one, settings)}
    made = {one.path: one for one in Run(settings, workers=1).convert(sorted(filter(library.exists, needed)))}
    for path in generated:
        result = made.get(modular[path])
        reads = {*(result.reads if result is not None else ()), *sources.get(path, ())} - {path}
        of_settings = [name for name in wrong.values() if name.endswith(CONFIGURATION)]
        if blamed := sorted({*of_settings, *(name for one, name in wrong.items() if one in reads)}):
            listed = ", ".join(blamed[:3])
            yield _Outcome("", f"resolve {listed} first, then run `check-modular-conversion --write`")
        elif result is None or path not in result.files:
            errors = (f"{one.code} {one.message}" for one in (result.findings if result else ()) if one.is_error)
            reason = f"it is not converted from {os.path.basename(modular[path]) or path}: {next(errors, '')}"
            yield _Outcome("", reason.rstrip(": "))
        else:
            yield _Outcome(result.files[path])
