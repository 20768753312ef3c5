"""The modular files that are affected by changes since a commit, or by saved files."""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import modular_converter
from modular_converter.convert.schedule import ancestor_files, reached, removes_attributes, required_files
from modular_converter.convert.source.library import Library
from modular_converter.files.read import is_installed
from modular_converter.files.write import path_of_generated
from modular_converter.findings import ConversionError
from modular_converter.git.work_tree import GitError, GitTimeout, Repository, Touched, WorkTrees
from modular_converter.rules import input_files
from modular_converter.settings.disk import is_below, upwards
from modular_converter.settings.load import PROFILE_FILES
from modular_converter.settings.toml_files import OTHER_FILES
from modular_converter.settings.values import Settings, is_modular, models_folder_of, modular_of


SETTINGS_FILES = frozenset({"pyproject.toml", "ruff.toml", ".ruff.toml", *OTHER_FILES})
PINS = (".pre-commit-config.yaml", "requirements*.txt", "constraints*.txt", "pylock*.toml", "*.lock")
"""Files that pin the version of this tool or of the formatter."""
PACKAGE = os.path.dirname(os.path.realpath(modular_converter.__file__))
"""The real folder of this tool's own files."""


Remembered = Callable[[str, Library, Callable[[Library], Any]], Any]


def _not_remembered(name: str, library: Library, make: Callable[[Library], Any]) -> Any:
    return make(library)


def touched_since(ref: str, paths: Collection[str], library: Library) -> list[str]:
    """The modular files that changes since a commit affect, directly or through others, sorted.

    A modular file is affected when one of its files was changed, added or removed: the file itself, its generated
    files, its neighbours, the sources of these in turn, and, where it removes attributes, the files of the ancestors of
    its neighbours' classes. The answer comes from texts, not from a cache, so it is the same everywhere; in doubt a
    file counts as affected. A change of settings, of what pins versions, of the tables of model names or of this tool
    affects all.

    Files may lie in several work trees. Files unknown to git count as changed, installed packages do not.

    Raises `ConversionError` when git knows nothing of the folders of models, or no such commit there.
    """
    grounds = _Grounds(library)
    try:
        changed = Touched(_changed_since(ref, paths, grounds))
    except GitError as error:
        raise ConversionError(input_files.unknown_revision(ref, str(error))) from None
    if _means_all(changed, paths, library.settings):
        return sorted(paths)
    return sorted({*_affected(changed, paths, grounds), *grounds.unreadable.intersection(paths)})


def affected(
    changed: Iterable[str],
    paths: Iterable[str],
    library: Library,
    required: Mapping[str, frozenset[str]] | None = None,
    remembered: Remembered = _not_remembered,
) -> list[str]:
    """The modular files that have changed, whose generated files have changed, or that build on these, at any distance.

    Args:
        changed: paths.
        library: it reads them and their neighbours.
        required: `required_files` of some, which are not asked again.
        remembered: gives what a function finds, given a name for it and the library that it reads from.
    """
    return _affected(Touched(changed), paths, _Grounds(library, required or {}, remembered))


def sources_of(path: str, library: Library) -> set[str]:
    """A modular or generated file, and the files that it is made from, at any distance."""
    return _Grounds(library).of(path)


class _Grounds:
    """The files that each file is made from. Each is looked at once."""

    def __init__(
        self,
        library: Library,
        required: Mapping[str, frozenset[str]] | None = None,
        remembered: Remembered = _not_remembered,
    ) -> None:
        self.settings = library.settings
        self.unreadable: set[str] = set()
        """Modular files that cannot be read or parsed, so their sources are unknown."""
        self._library = library
        self._required = {**(required or {})}
        self._remembered = remembered
        self._direct: dict[str, frozenset[str]] = {}
        self._ancestors: dict[str, frozenset[str]] = {}

    def of(self, start: str) -> set[str]:
        """The file itself and all its sources, at any distance."""
        return reached([start], self._of_one)

    def imported_by(self, start: str) -> set[str]:
        """The file itself and those of its sources that imports of modular files lead to, which are soon found."""
        return reached([start], self._imported_by_one)

    def _of_one(self, path: str) -> frozenset[str]:
        if path not in self._direct:
            found = self._imported_by_one(path)
            self._direct[path] = found | self._above(found) if self._removes_attributes(path) else found
        return self._direct[path]

    def _imported_by_one(self, path: str) -> frozenset[str]:
        if path not in self._required:
            found = self._of_modular(path) if is_modular(path, self.settings) else {modular_of(path, self.settings)}
            self._required[path] = frozenset(found) - {""}
        return self._required[path]

    def _of_modular(self, path: str) -> Collection[str]:
        if not self._library.exists(path):
            return ()
        try:
            self._library.module(path)
        except ConversionError:
            self.unreadable.add(path)
        return required_files(path, self._library)

    def _removes_attributes(self, path: str) -> bool:
        if not is_modular(path, self.settings) or "AttributeError" not in (self._library.text_if_readable(path) or ""):
            return False  # without parsing it
        return bool(
            self._remembered(f"removes {path}", self._library, lambda library: removes_attributes(path, library))
        )

    def _above(self, neighbours: Collection[str]) -> frozenset[str]:
        """The files in which the ancestors of the classes of these may lie."""
        for path in neighbours:
            if path not in self._ancestors:
                self._ancestors[path] = frozenset() if is_installed(path) else self._ancestors_of(path)
        return frozenset[str]().union(*(self._ancestors[path] for path in neighbours))

    def _ancestors_of(self, path: str) -> frozenset[str]:
        return frozenset(
            self._remembered(f"above {path}", self._library, lambda library: sorted(ancestor_files(path, library)))
        )


def _affected(changed: Touched, paths: Iterable[str], grounds: _Grounds) -> list[str]:
    settings = grounds.settings
    givers = {os.path.realpath(modular) for path in changed.paths if (modular := modular_of(path, settings))}
    known: dict[str, bool] = {}

    def is_touched(path: str) -> bool:
        if path not in known:
            places = path, path_of_generated(path, settings), *_links_of(path, settings)
            known[path] = any(place in changed or os.path.realpath(place) in givers for place in places)
        return known[path]

    return sorted(
        path
        for path in paths
        if any(map(is_touched, grounds.imported_by(path))) or any(map(is_touched, grounds.of(path)))
    )


def _links_of(path: str, settings: Settings) -> Iterator[str]:
    """The generated files of a modular file that are links: their targets may have any name."""
    if is_modular(path, settings):
        target = path_of_generated(path, settings)
        with contextlib.suppress(OSError), os.scandir(os.path.dirname(target)) as found:
            yield from (one.path for one in found if one.is_symlink() and modular_of(one.path, settings) == target)


def _changed_since(ref: str, paths: Collection[str], grounds: _Grounds) -> set[str]:
    """The files that decide these conversions and have changed, and the folders unknown to git.

    Raises `GitError` when the changes of the models' own tree are unknown.
    """
    trees = WorkTrees()
    own = {_own_tree(path, trees, grounds.settings) for path in paths}
    snapshots = {tree: tree.snapshot(tree.commit(ref)) for tree in own}
    changed: set[str] = set()
    for folder in sorted({*_folders(paths, grounds), *_above(paths, own), *_tool(own)}):
        real = os.path.realpath(folder)
        try:
            tree = trees.of(folder)
            if tree not in snapshots:
                snapshots[tree] = tree.snapshot(_base(ref, tree, own, trees))
        except GitTimeout:
            raise
        except GitError:
            changed.add(folder)
            continue
        for one in {tree, *own}:  # a repository within a work tree does not hide the files of that work tree
            if one == tree or snapshots[one].has_files_in(real):
                decides = snapshots[one].changes_in(
                    real, lambda name: name.endswith((".py", ".toml")) or _is_pin(name)
                )
                changed.update(decides)
    return changed


def _above(paths: Collection[str], own: Collection[Repository]) -> Iterator[str]:
    """The folders above the models in their work trees: settings and pins of versions stand there."""
    for folder in {folder for path in paths for folder in upwards(os.path.dirname(os.path.realpath(path)))}:
        if any(is_below(folder, os.path.realpath(tree.top)) for tree in own):
            yield folder


def _tool(own: Collection[Repository]) -> Iterator[str]:
    """The folders of this tool, where it lies in the work tree of the models."""
    if not is_installed(PACKAGE) and any(is_below(PACKAGE, os.path.realpath(tree.top)) for tree in own):
        for folder, folders, _ in os.walk(PACKAGE):
            folders[:] = [name for name in folders if name != "__pycache__"]
            yield folder


def _folders(paths: Collection[str], grounds: _Grounds) -> set[str]:
    """The files that decide the conversion of these modular files, apart from the tool and installed packages."""
    settings = grounds.settings
    files = {file for path in paths for file in grounds.of(path)}
    files |= (
        {path_of_generated(path, settings) for path in paths} | named_settings(settings) | _tables(paths, settings)
    )
    places = {place for file in files for place in (file, os.path.realpath(file))}
    return {os.path.dirname(place) for place in places if not is_installed(place)}


def _tables(paths: Collection[str], settings: Settings) -> set[str]:
    folders = {models_folder_of(path, settings) for path in paths}
    return {os.path.join(folder, table) for folder in folders for table in settings.auto_tables}


def named_settings(settings: Settings) -> set[str]:
    """The files that settings come from, as far as they can be found."""
    formattings = settings.formattings
    extended = (path for one in formattings for path, _ in one.ruff_extended)
    own = (path for one in formattings for path in (one.ruff_config_path, one.black_config_path))
    profile = (os.path.join(settings.profile, name) for name in PROFILE_FILES if os.path.isabs(settings.profile))
    return {settings.pyproject, *own, *extended, *profile} - {""}


def _own_tree(path: str, trees: WorkTrees, settings: Settings) -> Repository:
    """The work tree of the folder of models, in which the name of a commit is looked up."""
    try:
        return trees.of(models_folder_of(path, settings))
    except GitError:
        return trees.of(os.path.dirname(path))


def _base(ref: str, tree: Repository, own: Collection[Repository], trees: WorkTrees) -> str:
    """The commit to compare with: in a submodule, the commit that the surrounding work tree records for it.

    Raises `GitError` for any other repository within the models' own work tree: that work tree knows nothing of it.
    """
    above = os.path.dirname(tree.top)
    if tree not in own and above != tree.top:
        try:
            outer = trees.of(above)
        except GitError:
            return tree.commit(ref)
        if link := outer.link(_base(ref, outer, own, trees), tree.top):
            return link
        if any(is_below(tree.top, os.path.realpath(one.top)) for one in own):
            raise GitError("no commit of the surrounding work tree names this repository")
    return tree.commit(ref)


def _means_all(changed: Touched, paths: Collection[str], settings: Settings) -> bool:
    """Whether the changes include settings, pins of versions, the table of model names, or this tool."""
    if not all(one.ruff_is_followed for one in settings.formattings) or any(
        path in changed for path in _tables(paths, settings) | named_settings(settings)
    ):
        return True
    above = {folder for path in paths for folder in upwards(os.path.dirname(os.path.realpath(path)))}
    return any(
        os.path.basename(path) in SETTINGS_FILES
        or path.startswith(os.path.join(PACKAGE, ""))
        or (os.path.dirname(path) in above and _is_pin(os.path.basename(path)))
        for path in changed.paths
    )


def _is_pin(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in PINS)
