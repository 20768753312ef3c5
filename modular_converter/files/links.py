"""Symbolic links that lead out of the root: a stranger's link must not make the tool print or copy a private file."""

from __future__ import annotations

import os
import stat

from modular_converter.findings import ConversionError, Location
from modular_converter.rules import outside_root
from modular_converter.settings.parent_folders import INSTALLED, models_folder_of
from modular_converter.settings.values import Settings


def is_installed(path: str) -> bool:
    """Whether a path lies in a folder of installed packages. They are read only, and trusted."""
    return not INSTALLED.isdisjoint(path.split(os.sep))


def root_of(path: str, settings: Settings) -> str:
    """The folder that no link in the path of a model's file may lead out of.

    That is the configured root, when the file lies below it, and else its folder of models.
    """
    if settings.root and path.startswith(os.path.join(settings.root, "")):
        return settings.root
    return models_folder_of(path)


def refuse_link_out(path: str, settings: Settings) -> None:
    """Raise `ConversionError` (MC114) for a model's file that is, or lies behind, a link out of the root.

    A file of the same name may lie outside: build tools and package caches make trees of such links. Only the file and
    its folder are looked at, and only a link is followed.
    """
    if not (is_link(path) or is_link(os.path.dirname(path))) or is_installed(path):
        return
    target, root = os.path.realpath(path), os.path.realpath(root_of(path, settings))
    if os.path.basename(target) != os.path.basename(path) and not target.startswith(os.path.join(root, "")):
        raise ConversionError(outside_root.diagnose(Location(path), target, root))


def is_link(path: str) -> bool:
    """Whether a path itself is a symbolic link."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
