"""Find programs on PATH, but none that the tree under check brings along."""

from __future__ import annotations

import os

from modular_converter.settings.parent_folders import is_below


SUFFIX = ".exe" if os.name == "nt" else ""


def program_on_path(name: str, forbidden: str) -> str:
    """The first program of a name in a folder of PATH, "" for none.

    Args:
        name: such as `ruff`, without a suffix.
        forbidden: the folder of the project that is read; programs inside of it are not run, unless it is the topmost
            folder. Relative folders of PATH are skipped, too: they depend on the folder in which the command was
            started.
    """
    top = os.path.realpath(forbidden) if forbidden else ""
    top = "" if top == os.path.dirname(top) else top
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name + SUFFIX)
        if not os.path.isabs(folder) or not os.path.isfile(path) or not os.access(path, os.X_OK):
            continue
        real = os.path.join(os.path.realpath(folder), name + SUFFIX), os.path.realpath(path)
        if not top or not any(is_below(one, top) for one in real):
            return path
    return ""
