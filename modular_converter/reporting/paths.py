"""Paths as reports show them."""

from __future__ import annotations

import os

from modular_converter.reporting import safe


WORKSPACE = "GITHUB_WORKSPACE"
"""The variable that names the checkout in GitHub Actions, whatever folder a step works in."""


def shown_path(path: str, folder: str) -> str:
    """`path` for people: relative to `folder` when it lies inside, and without control characters."""
    return safe.escaped(_relative(path, folder))


def names_a_file(path: str) -> bool:
    """Whether a place is in a file. Other places, such as `--changed-since` or the name of a model, are for people
    only.
    """
    return path.endswith((".py", ".toml")) or os.path.exists(path)


def shown_posix(path: str, folder: str) -> str:
    """`path` for machines: as it is, relative to `folder` when it lies inside, with `/` between the parts."""
    return _relative(path, folder).replace(os.sep, "/")


def in_checkout(path: str, folder: str) -> str:
    """The same for a service that knows the files of a checkout: relative to the checkout of GitHub Actions, if inside."""
    workspace = os.environ.get(WORKSPACE)
    if workspace and os.path.isabs(workspace):
        absolute = os.path.join(folder, path)
        for root in (workspace, os.path.realpath(workspace)):
            inside = _relative(absolute, root)
            if not os.path.isabs(inside):
                return inside.replace(os.sep, "/")
    return shown_posix(path, folder)


def _relative(path: str, folder: str) -> str:
    if not os.path.isabs(path):
        return path
    try:
        relative = os.path.relpath(path, folder)
    except ValueError:  # another drive
        return path
    return path if relative.split(os.sep, 1)[0] == os.pardir else relative
