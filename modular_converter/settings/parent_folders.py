"""Folders above a file or a folder: models, projects, installed packages."""

from __future__ import annotations

import os
from collections.abc import Iterator


PROJECT_MARKS = ("pyproject.toml", ".git")
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages: settings of a project above them do not hold for the packages."""


def upwards(folder: str) -> Iterator[str]:
    """A folder and all folders above it, the nearest first."""
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        yield parent
        folder = parent


def is_below(path: str, top: str) -> bool:
    """Whether an absolute path is the folder `top` or lies inside of it. Where links matter, the caller resolves them."""
    return os.path.join(path, "").startswith(os.path.join(os.path.normpath(top), ""))


def repository_above(folder: str) -> str:
    """The nearest folder at or above this one with a `.git`, else that of `project_above`; "" where neither is."""
    repositories = (here for here in upwards(folder) if os.path.exists(os.path.join(here, ".git")))
    return next(repositories, "") or project_above(folder)


def project_above(folder: str) -> str:
    """The nearest folder at or above this one that is a project's or a repository's; "" where none is."""
    marked = (
        here for here in upwards(folder) if any(os.path.exists(os.path.join(here, mark)) for mark in PROJECT_MARKS)
    )
    return next(marked, "")
