"""Paths as reports show them."""

from __future__ import annotations

import os


def shown(path: str, folder: str) -> str:
    """`path` relative to `folder` when it lies inside, else as it is."""
    if not os.path.isabs(path):
        return path
    try:
        relative = os.path.relpath(path, folder)
    except ValueError:  # another drive
        return path
    return path if relative.split(os.sep, 1)[0] == os.pardir else relative


def names_a_file(path: str) -> bool:
    """Whether a place is in a file; others, such as `--changed-since` or the name of a model, are for people only."""
    return path.endswith((".py", ".toml")) or os.path.exists(path)


def shown_posix(path: str, folder: str) -> str:
    """The same with `/` between the parts, as machines want it."""
    return shown(path, folder).replace(os.sep, "/")
