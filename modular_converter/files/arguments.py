"""From what is given on the command line to modular files: paths, globs, model names, folders, or `all`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from modular_converter.diagnostics import ConversionError, Diagnostic, Location
from modular_converter.files.listing import Listings
from modular_converter.rules import bad_setting, missing_file, nothing_to_convert
from modular_converter.settings.load import load_settings
from modular_converter.settings.parent_folders import project_above
from modular_converter.settings.values import Settings


ALL = "all"
SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist"})


class Found(NamedTuple):
    """What the arguments stand for."""

    paths: tuple[str, ...]
    """Absolute paths of modular files, sorted."""
    problems: tuple[Diagnostic, ...]
    """One for each argument that stands for nothing."""


def discover(arguments: Iterable[str], models: str | None, listings: Listings | None = None) -> Found:
    """Find the modular files that the arguments stand for.

    Args:
        models: the folder that model names and `all` are looked up in; None when it is not known.
        listings: what is known of folders, for a caller who looks at the same ones.
    """
    listings = listings or Listings()
    paths: set[str] = set()
    problems: list[Diagnostic] = []
    for argument in arguments:
        try:
            paths.update(_expand(argument, models, listings))
        except ConversionError as error:
            problems += error.diagnostics
    return Found(tuple(sorted(paths)), tuple(problems))


def settings_of(paths: Sequence[str], arguments: Iterable[str]) -> Settings:
    """The settings of the project that files lie in, among them those that arguments name by path.

    Raises `ConversionError` where these are of two projects with settings of their own.
    """
    settings = load_settings(os.path.dirname(paths[0]))
    starts = {argument if os.path.isdir(argument) else os.path.dirname(argument) for argument in arguments}
    for start in sorted(start for start in starts if start and os.path.isdir(start)):
        other = load_settings(start)
        if other.pyproject != settings.pyproject:
            raise ConversionError(bad_setting.mixed(*sorted((settings.pyproject, other.pyproject), reverse=True)))
    return settings


def models_folder(
    package: str | None, root: str | None, configured: str, listings: Listings | None = None
) -> str | None:
    """The folder of models that `--package`, `--root` or the settings name, or one below here or the project's folder.

    Raises `ConversionError` for a package or folder that does not exist.
    """
    if package:
        from modular_converter.files.packages import find_package

        folder = find_package(package, os.getcwd())
        if folder is None:
            raise ConversionError(nothing_to_convert.diagnose(package, reason="no such package is installed"))
        return os.path.join(folder, "models")
    named = root or configured
    if named:
        folder = os.path.abspath(named)
        if not os.path.isdir(folder):
            raise ConversionError(missing_file.diagnose(Location(named), reason="no such folder"))
        inner = os.path.join(folder, "models")
        return inner if os.path.isdir(inner) else folder
    listings = listings or Listings()
    here = os.getcwd()
    places = dict.fromkeys((here, project_above(here) or here))
    found = (folder for place in places for folder in _model_folders_below(place))
    return next((folder for folder in found if _modular_files_below(folder, listings)), None)


def _model_folders_below(folder: str) -> Iterator[str]:
    import glob

    for pattern in ("models", "src/*/models", "*/models"):
        found = sorted(glob.glob(os.path.join(glob.escape(folder), *pattern.split("/"))))
        yield from (path for path in found if os.path.isdir(path))


def _expand(argument: str, models: str | None, listings: Listings) -> Sequence[str]:
    if argument == ALL:
        paths = _modular_files_below(models, listings)
        if not paths:
            raise ConversionError(
                nothing_to_convert.diagnose(argument, reason="no folder of models found from here; give `--root DIR`")
            )
        return paths
    if os.path.isdir(argument):
        paths = _modular_files_below(argument, listings)
        if not paths:
            raise ConversionError(nothing_to_convert.diagnose(argument, reason="no modular file in this folder"))
        return paths
    if os.path.isfile(argument):
        if not _is_modular(argument):
            reason = "not a modular file: its name is not `modular_<model>.py`"
            raise ConversionError(nothing_to_convert.diagnose(argument, reason=reason))
        return [os.path.abspath(argument)]
    import glob

    if glob.has_magic(argument):
        paths = [os.path.abspath(path) for path in glob.glob(argument, recursive=True) if _is_modular(path)]
        if not paths:
            raise ConversionError(nothing_to_convert.diagnose(argument, reason="the pattern matches no modular file"))
        return paths
    if os.sep in argument or argument.endswith(".py"):
        raise ConversionError(missing_file.diagnose(Location(argument)))
    return _by_model_name(argument, models, listings)


def _by_model_name(name: str, models: str | None, listings: Listings) -> Sequence[str]:
    everything = _modular_files_below(models, listings)
    folder = name.replace("-", "_")
    paths = [path for path in everything if os.path.basename(os.path.dirname(path)) == folder]
    paths = paths or [path for path in everything if os.path.basename(path) == f"modular_{folder}.py"]
    if not paths:
        known = sorted({os.path.basename(os.path.dirname(path)) for path in everything})
        raise ConversionError(nothing_to_convert.diagnose(name, reason="no such model or file", candidates=known))
    return paths


def _is_modular(path: str) -> bool:
    return _is_modular_name(os.path.basename(path))


def _is_modular_name(name: str) -> bool:
    return name.startswith("modular_") and name.endswith(".py") and name != "modular_.py"


def _modular_files_below(folder: str | None, listings: Listings) -> list[str]:
    """The modular files in a folder and the folders in it; links to folders are not followed. Sorted."""
    if folder is None:
        return []
    return sorted(listings.below(os.path.abspath(folder), SKIPPED, _is_modular_name))
