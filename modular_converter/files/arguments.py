"""Find the modular files that arguments of the command line mean (paths, globs, folders, model names, or `all`), with
their settings: the start of every command.
"""

from __future__ import annotations

import errno
import functools
import glob
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from modular_converter.files.read import find_package, given_text
from modular_converter.files.write import same_targets
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import input_files, settings_tables
from modular_converter.settings.disk import is_below, project_above
from modular_converter.settings.load import load_settings, load_settings_of
from modular_converter.settings.values import (
    Settings,
    folder_of_model,
    is_modular,
    model_of_modular,
    models_folder_of,
    modular_name,
    names_of_models,
    place_of_model,
)


_NEVER_A_FOLDER = frozenset({errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR})
"""Errors that mean a dangling link. Behind a link with any other error there is a file or a folder."""


class Listing(NamedTuple):
    """The names in a folder, sorted."""

    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Links to folders."""
    files: tuple[str, ...] = ()
    """All other entries, dangling links included."""


Unignored = Callable[[str, Sequence[str]], "Collection[str] | None"]
"""Gives the paths below some folders in a folder that git does not ignore: files, links, and repositories within; None
if git cannot tell.
"""


class Listings:
    """The names in folders at the time when each is first asked for."""

    def __init__(self, unignored: Unignored | None = None) -> None:
        """`unignored` tells which files in hidden and output folders are searched; without it, these folders are
        skipped.
        """
        self.unignored = unignored
        self.searched: dict[str, Sequence[str]] = {}
        """Folder -> the folders below it that may hold modular files; `files.arguments.folders_below` fills it."""
        self._known: dict[str, Listing] = {}
        self._unreadable: dict[str, str] = {}

    def of(self, folder: str) -> Listing:
        """The names in a folder. A folder that does not exist is empty; one that cannot be listed is in `findings`."""
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = self._list(folder)
        return known

    def has(self, folder: str, name: str) -> bool:
        """Whether a folder has a file, link or folder of a name."""
        listing = self.of(folder)
        if folder in self._unreadable:  # its files can be opened all the same
            return os.path.lexists(os.path.join(folder, name))
        return any(name in names for names in listing)

    @property
    def findings(self) -> list[Finding]:
        """A finding for each folder so far that exists and cannot be listed, sorted."""
        return [input_files.folder(Location(path), reason) for path, reason in sorted(self._unreadable.items())]

    def _list(self, folder: str) -> Listing:
        folders, links, files = [], [], []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_symlink() and self._leads_to_folder(entry):
                        links.append(entry.name)
                    else:
                        files.append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return Listing()
        except OSError as error:
            self._unreadable[folder] = error.strerror or type(error).__name__
        return Listing(tuple(sorted(folders)), tuple(sorted(links)), tuple(sorted(files)))

    def _leads_to_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir()
        except OSError as error:
            if error.errno not in _NEVER_A_FOLDER:
                self._unreadable[entry.path] = error.strerror or type(error).__name__
            return False


NEVER = ".git"
"""A folder of this name holds no sources, and cannot be committed."""
OUTPUTS = frozenset({"build", "dist", "node_modules"})
"""Folders with these names mostly hold copies of other files if they stand at the top of a project."""
PROJECT_FILES = frozenset({"pyproject.toml", "setup.py", "setup.cfg", "package.json", ".git"})
"""The files and folders by which the top folder of a project is recognised."""
ENVIRONMENT = "pyvenv.cfg"
"""The file at the top of a virtual environment."""


class ModelFolders:
    """The search for folders that may hold models, through the listings of a run.

    Links are followed within the project. Of hidden folders, and of `build`, `dist` and `node_modules` at the top of a
    project, only those are yielded that hold a wanted file which git does not ignore. These folders, and a folder
    outside of the project behind a link, are also yielded if they directly hold a wanted file.
    """

    def __init__(self, listings: Listings, wanted: Callable[[str], bool]) -> None:
        """A search for files whose names are `wanted`."""
        self._listings, self._wanted = listings, wanted
        self._seen: set[str] = set()
        self._links: list[str] = []
        self._aside: list[tuple[str, list[str]]] = []

    def below(self, top: str) -> Iterator[str]:
        """The folder `top` and the folders below it, each once: by a plain path if there is one, else behind a link."""
        real_top = os.path.realpath(top)
        project = os.path.realpath(project_above(real_top) or os.path.dirname(real_top))
        yield from self._walk(top, real_top)
        while self._links or self._aside:
            if self._links:
                yield from self._behind(self._links.pop(), real_top, project)
            else:
                yield from self._in_aside(*self._aside.pop())

    def files_below(self, top: str) -> Iterator[str]:
        """The wanted files in the folders of `below`."""
        for here in self.below(top):
            yield from (os.path.join(here, name) for name in self._listings.of(here).files if self._wanted(name))

    def _walk(self, top: str, real_top: str) -> Iterator[str]:
        """The plain folders that were not seen yet; links, hidden and output folders wait for later."""
        waiting = [(top, real_top)]
        while waiting:
            here, real = waiting.pop()
            if real in self._seen:
                continue
            self._seen.add(real)
            listing = self._listings.of(here)
            yield here
            self._links += (f"{here}{os.sep}{name}" for name in listing.links)
            is_top = not PROJECT_FILES.isdisjoint((*listing.files, *listing.folders))
            aside = {name for name in listing.folders if name[0] == "." or (is_top and name in OUTPUTS)}
            plain = (name for name in listing.folders if name not in aside)
            waiting += ((f"{here}{os.sep}{name}", f"{real}{os.sep}{name}") for name in plain)
            if aside := aside - {NEVER}:
                self._aside.append((here, sorted(aside)))

    def _behind(self, link: str, real_top: str, project: str) -> Iterator[str]:
        """The folders behind a link: all within the project, else only the folder itself."""
        target = os.path.realpath(link)
        if is_below(target, project) and not is_below(real_top, target):
            yield from self._walk(link, target)
        else:
            yield from self._alone(link)

    def _alone(self, folder: str) -> Iterator[str]:
        """A folder, without the folders below it, if it directly holds a wanted file."""
        real = os.path.realpath(folder)
        if real not in self._seen and any(map(self._wanted, self._listings.of(folder).files)):
            yield folder
        self._seen.add(real)

    def _in_aside(self, here: str, names: Sequence[str]) -> Iterator[str]:
        """The folders with wanted files at or below the hidden and output folders in a folder."""
        unignored = self._listings.unignored
        found = unignored(here, names) if unignored else ()
        for folder in (f"{here}{os.sep}{name}" for name in names):
            if found is None and ENVIRONMENT not in self._listings.of(folder).files:
                yield from self._walk(folder, os.path.realpath(folder))
            else:
                yield from self._alone(folder)
        for path in sorted(found or ()):
            if os.path.islink(path) and os.path.isdir(path):
                self._links.append(path)
            elif os.path.isdir(path):  # a repository of its own
                yield from self._walk(path, os.path.realpath(path))
            elif self._wanted(os.path.basename(path)):
                yield from self._alone(os.path.dirname(path))


ALL = "all"


class Found(NamedTuple):
    """The modular files that arguments mean."""

    paths: tuple[str, ...]
    """Absolute paths, sorted."""
    findings: tuple[Finding, ...]
    """A finding for each argument that means no file."""


def discover(arguments: Iterable[str], models: str | None, listings: Listings | None = None) -> Found:
    """Find the modular files that the arguments mean.

    Args:
        arguments: paths, globs, folders, model names, or `all`.
        models: the folder that `all` and model names refer to; None when no folder is known.
        listings: folders that the caller has listed already.
    """
    listings = listings or Listings()
    paths: set[str] = set()
    findings: list[Finding] = []
    for argument in arguments:
        try:
            paths.update(_expand(argument, models, listings))
        except ConversionError as error:
            findings += error.findings
    return Found(tuple(sorted(paths)), tuple(findings))


def models_folder(package: str | None, root: str | None, listings: Listings | None = None) -> str | None:
    """The folder of models: named by `--package`, `--root` or the settings, else found below here or below the project.

    Args:
        package: the value of `--package`.
        root: the value of `--root`.
        listings: folders that the caller has listed already.

    Raises `ConversionError` for a wrong setting, and for a package or folder that does not exist.
    """
    if package:
        folder = find_package(package, os.getcwd())
        if folder is None:
            reason = "a folder is given by `--root`" if os.path.isdir(package) else "no such package is installed"
            raise ConversionError(input_files.nothing_to_convert(package, reason=reason))
        return os.path.join(folder, "models")
    named = root or load_settings(os.getcwd()).root
    if named:
        folder = os.path.abspath(named)
        if not os.path.isdir(folder):
            raise ConversionError(input_files.missing_file(Location(named), reason="no such folder"))
        inner = os.path.join(folder, "models")
        return inner if os.path.isdir(inner) else _only_models_below(folder, listings or Listings())
    listings = listings or Listings()
    here = os.getcwd()
    places = dict.fromkeys((here, project_above(here) or here))
    found = (folder for place in places for folder in _model_folders_below(place))
    return next((folder for folder in found if _modular_files_below(folder, listings)), None)


def _only_models_below(folder: str, listings: Listings) -> str:
    """The folder of models of the only package below a folder that is given in its place, such as the top of a repository: the
    one that holds all its modular files. The folder itself where there is none such.
    """
    for found in _model_folders_below(folder):
        if paths := _modular_files_below(found, listings):
            return found if len(_modular_files_below(folder, listings)) == len(paths) else folder
    return folder


def _model_folders_below(folder: str) -> Iterator[str]:
    for pattern in ("models", "src/*/models", "*/models"):
        found = sorted(glob.glob(os.path.join(glob.escape(folder), *pattern.split("/"))))
        yield from (path for path in found if os.path.isdir(path))


def required_models_folder(package: str | None, root: str | None) -> str:
    """The same for a command that needs the folder. Raises `ConversionError` where there is none."""
    folder = models_folder(package, root)
    if folder is None or not os.path.isdir(folder):
        reason = "no folder of models found from here; give `--root DIR`"
        raise ConversionError(input_files.missing_file(Location(folder or os.getcwd()), reason=reason))
    return folder


def model_folder(name: str, models: str, settings: Settings) -> str:
    """The folder of a model, by its name with `-` or `_`. Raises `ConversionError` where there is none."""
    known = names_of_models(models, settings)
    model = name.replace("-", "_")
    if model not in known:
        raise ConversionError(input_files.model(Location(name), known))
    return folder_of_model(models, model, settings)


def means_many(argument: str) -> bool:
    """Whether an argument does not name one file or model: `all`, a folder or a glob."""
    is_glob = glob.has_magic(argument) and not os.path.isfile(argument)
    return argument == ALL or os.path.isdir(argument) or is_glob


def _expand(argument: str, models: str | None, listings: Listings) -> Sequence[str]:
    if argument == ALL:
        paths = _modular_files_below(models, listings)
        reason = f"no modular file in {models}" if models else "no folder of models found from here; give `--root DIR`"
    elif os.path.isdir(argument):
        paths, reason = _modular_files_below(argument, listings), "no modular file in this folder"
    elif os.path.isfile(argument):
        _refuse_other_name(argument)
        return [os.path.abspath(argument)]
    elif glob.has_magic(argument):
        for folder in glob.glob(os.path.dirname(argument), recursive=True):
            listings.of(os.path.abspath(folder))  # `glob` is silent about a folder that cannot be listed
        paths = [os.path.abspath(path) for path in glob.glob(argument, recursive=True) if has_modular_name(path)]
        reason = "the pattern matches no modular file"
    elif os.sep in argument or argument.endswith(".py"):
        raise ConversionError(input_files.missing_file(Location(argument)))
    else:
        return _by_model_name(argument, models, listings)
    if not paths:
        raise ConversionError(input_files.nothing_to_convert(argument, reason=reason))
    return paths


def _by_model_name(name: str, models: str | None, listings: Listings) -> Sequence[str]:
    everything = _modular_files_below(models, listings)
    folder = name.replace("-", "_")
    settings = load_settings(models or os.getcwd())
    known = {path: os.path.basename(place_of_model(path, settings)) for path in everything}
    paths = [path for path, model in known.items() if model == folder]
    paths = paths or [path for path in everything if model_of_modular(path, settings) == folder]
    if not paths:
        exists = models is not None and os.path.isdir(os.path.join(models, folder))
        reason = "no modular file in the folder of this model" if exists else "no such model or file"
        candidates = () if exists else sorted({*known.values()})
        raise ConversionError(input_files.nothing_to_convert(name, reason=reason, candidates=candidates))
    return paths


def require_file(path: str) -> None:
    """Raise `ConversionError` (MC103) unless this is a file, for commands that ask about one."""
    if not os.path.isfile(path):
        reason = "it is a folder; name one of its files" if os.path.isdir(path) else "no such file"
        raise ConversionError(input_files.missing_file(Location(os.path.relpath(path)), reason=reason))


def _refuse_other_name(path: str) -> None:
    """Raise `ConversionError` for a file that is no modular file by its name."""
    if not has_modular_name(path):
        named = modular_name("<model>", load_settings(os.path.dirname(os.path.abspath(path))))
        reason = f"not a modular file: its name is not `{named}`"
        raise ConversionError(input_files.nothing_to_convert(path, reason=reason))


def has_modular_name(path: str) -> bool:
    """Whether a file is a modular file by its name and the settings of its folder."""
    return is_modular(path, load_settings(os.path.dirname(os.path.abspath(path))))


def _modular_files_below(folder: str | None, listings: Listings) -> list[str]:
    """The modular files at any depth of a folder, sorted."""
    if folder is None:
        return []
    below = ((here, listings.of(here).files) for here in folders_below(folder, listings))
    settings = load_settings(folder)
    return sorted(os.path.join(here, name) for here, names in below for name in names if is_modular(name, settings))


def folders_below(folder: str, listings: Listings) -> Sequence[str]:
    """A folder and the folders below it that may hold modular files, searched once in a run."""
    top = os.path.abspath(folder)
    if top not in listings.searched:
        wanted = functools.partial(is_modular, settings=load_settings(top))
        listings.searched[top] = [*ModelFolders(listings, wanted).below(top)]
    return listings.searched[top]


class Selection(NamedTuple):
    """The modular files that a command line means, with the settings of their project."""

    settings: Settings
    models: str | None
    """The folder of models; None when no folder is known."""
    paths: tuple[str, ...]
    """Absolute paths of modular files, sorted."""
    findings: tuple[Finding, ...]
    """A finding for each argument that means no file, each folder that cannot be listed, and each pair of files with
    one target.
    """
    given: Mapping[str, str] = {}
    """Texts that are read in place of files."""


def select_files(
    arguments: Sequence[str],
    *,
    package: str | None = None,
    root: str | None = None,
    listings: Listings | None = None,
    overrides: Mapping[str, Any] | None = None,
    content: bytes | None = None,
) -> Selection:
    """Find the files that `arguments` mean, and read the settings of the project that holds them.

    Args:
        arguments: paths, globs, folders, model names, or `all`.
        package: the installed package whose models are meant.
        root: the folder of models, or the package folder that holds it.
        listings: folders that the caller has listed already.
        overrides: fields of `Settings` by name; None and False leave the project's setting as it is.
        content: the text of the only file that `arguments` name, whether there is a file or not.

    Raises `ConversionError` for a wrong setting, for a folder or package that does not exist, and for files of two
    projects with different settings; for a text that cannot be read, and one of a path that is no modular file's.
    """
    if content is not None:
        _refuse_other_name(arguments[0])
        path = os.path.abspath(arguments[0])
        settings = _overridden(load_settings_of([path]), overrides)
        return Selection(
            settings, models_folder_of(path, settings), (path,), (), {path: given_text(path, content, settings)}
        )
    listings = listings or Listings()
    models = models_folder(package, root, listings)
    found = discover(arguments, models, listings)
    own = _project_settings(found.paths, arguments, listings) if found.paths else load_settings(root or os.getcwd())
    settings = _overridden(own, overrides)
    clashes = same_targets(found.paths, settings)
    paths = tuple(path for path in found.paths if path not in clashes)
    return Selection(settings, models, paths, (*found.findings, *listings.findings, *clashes.values()))


def _overridden(settings: Settings, overrides: Mapping[str, Any] | None) -> Settings:
    given = {name: value for name, value in (overrides or {}).items() if value is not None and value is not False}
    return replace(settings, **given)


def _project_settings(paths: Sequence[str], arguments: Sequence[str], listings: Listings) -> Settings:
    """The settings for `paths`; raises `ConversionError` where the arguments name folders of two projects."""
    settings = load_settings_of(paths, listings.has)
    starts = {argument if os.path.isdir(argument) else os.path.dirname(argument) for argument in arguments}
    for start in sorted(start for start in starts if start and os.path.isdir(start)):
        other = load_settings(start)
        if other.pyproject != settings.pyproject:
            raise ConversionError(settings_tables.mixed(*sorted((settings.pyproject, other.pyproject), reverse=True)))
    return settings
