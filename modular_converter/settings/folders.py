"""The settings of files in several folders: one record, in which some folders may have formatter settings of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import replace

from modular_converter.rules import bad_setting
from modular_converter.settings.load import load_settings
from modular_converter.settings.toml_files import RUFF_NAMES, SettingsError
from modular_converter.settings.values import Settings


_NAMES = (*RUFF_NAMES, "pyproject.toml")


def load_settings_of(paths: Iterable[str], has_file: Callable[[str, str], bool] | None = None) -> Settings:
    """The settings for modular files, given as absolute paths: for each file those that it has when it is alone.

    Args:
        paths: the modular files.
        has_file: whether a folder has a file of a name, for a caller who has listed the folders.

    Raises `SettingsError` for a setting that cannot be obeyed, and for files of two projects with different settings.
    """
    has_file = has_file or _has_file
    folders = sorted({os.path.dirname(path) for path in paths})
    own = {folder for folder in folders if any(has_file(folder, name) for name in _NAMES)}
    known: dict[str, Settings] = {}
    found = {folder: _of(folder, folder in own, known) for folder in folders}
    base = found[min((folder for folder in folders if folder not in own), default=folders[0])]
    for other in found.values():
        if other.pyproject != base.pyproject:
            raise SettingsError(bad_setting.mixed(*sorted((base.pyproject, other.pyproject), reverse=True)))
    differing = ((folder, one) for folder, one in found.items() if one is not base and one != base)
    return replace(base, by_folder=tuple(differing))


def _of(folder: str, has_own: bool, known: dict[str, Settings]) -> Settings:
    """The settings of a folder; those of the folder above, which most folders share, are loaded once."""
    above = os.path.dirname(folder)
    start = folder if has_own or above == folder else above
    if start not in known:
        known[start] = load_settings(start)
    return known[start]


def _has_file(folder: str, name: str) -> bool:
    return os.path.lexists(os.path.join(folder, name))
