"""The settings of files in several folders: one record, in which some folders may have formatter settings of their own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from modular_converter.rules import bad_setting
from modular_converter.settings.load import load_settings
from modular_converter.settings.toml_files import RUFF_NAMES, SettingsError
from modular_converter.settings.values import Settings


_NAMES = (*RUFF_NAMES, "pyproject.toml")


def load_settings_of(paths: Iterable[str]) -> Settings:
    """The settings for modular files, given as absolute paths: for each file those that it has when it is alone.

    Raises `SettingsError` for a setting that cannot be obeyed, and for files of two projects with different settings.
    """
    known: dict[str, Settings] = {}
    folders = {os.path.dirname(path) for path in paths}
    found = {folder: _of(folder, known) for folder in sorted(folders)}
    plain = [folder for folder in found if not _has_settings(folder)]
    base = found[min(plain or found)]
    for other in found.values():
        if other.pyproject != base.pyproject:
            raise SettingsError(bad_setting.mixed(*sorted((base.pyproject, other.pyproject), reverse=True)))
    differing = ((folder, one) for folder, one in found.items() if one != base)
    return replace(base, by_folder=tuple(differing))


def _of(folder: str, known: dict[str, Settings]) -> Settings:
    """The settings of a folder; those of the folder above, which most folders share, are loaded once."""
    above = os.path.dirname(folder)
    start = folder if _has_settings(folder) or above == folder else above
    if start not in known:
        known[start] = load_settings(start)
    return known[start]


def _has_settings(folder: str) -> bool:
    return any(os.path.lexists(os.path.join(folder, name)) for name in _NAMES)
