"""The modular files that a command line means, with their settings: the start of every command."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from modular_converter.files.arguments import discover, models_folder
from modular_converter.files.generated_files import same_targets
from modular_converter.files.listing import Listings
from modular_converter.findings import ConversionError, Finding
from modular_converter.rules import bad_setting
from modular_converter.settings.folders import load_settings_of
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import Settings


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


def select_files(
    arguments: Sequence[str],
    *,
    package: str | None = None,
    root: str | None = None,
    listings: Listings | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Selection:
    """Find the files that `arguments` mean, and read the settings of the project that holds them.

    Args:
        arguments: paths, globs, folders, model names, or `all`.
        package: the installed package whose models are meant.
        root: the folder of models, or the package folder that holds it.
        listings: folders that the caller has listed already.
        overrides: fields of `Settings` by name; None and False leave the project's setting as it is.

    Raises `ConversionError` for a wrong setting, for a folder or package that does not exist, and for files of two
    projects with different settings.
    """
    listings = listings or Listings()
    here = functools.partial(load_settings, root or os.getcwd())
    models = models_folder(package, root, listings)
    found = discover(arguments, models, listings)
    settings = _project_settings(found.paths, arguments, listings) if found.paths else here()
    given = {name: value for name, value in (overrides or {}).items() if value is not None and value is not False}
    settings = replace(settings, **given)
    clashes = same_targets(found.paths, settings)
    paths = tuple(path for path in found.paths if path not in clashes)
    return Selection(settings, models, paths, (*found.findings, *listings.findings, *clashes.values()))


def _project_settings(paths: Sequence[str], arguments: Sequence[str], listings: Listings) -> Settings:
    """The settings for `paths`; raises `ConversionError` where the arguments name folders of two projects."""
    settings = load_settings_of(paths, listings.has)
    starts = {argument if os.path.isdir(argument) else os.path.dirname(argument) for argument in arguments}
    for start in sorted(start for start in starts if start and os.path.isdir(start)):
        other = load_settings(start)
        if other.pyproject != settings.pyproject:
            raise ConversionError(bad_setting.mixed(*sorted((settings.pyproject, other.pyproject), reverse=True)))
    return settings
