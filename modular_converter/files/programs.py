"""Programs that are run, found without trust in the tree that is read."""

from __future__ import annotations

import os

from modular_converter.settings.parent_folders import is_below


SUFFIX = ".exe" if os.name == "nt" else ""


def program_on_path(name: str, forbidden: str) -> str:
    """The first program of a name in a folder of PATH, "" for none.

    Args:
        name: such as `ruff`, without a suffix.
        forbidden: the folder of the project that is read; programs inside of it are not run, unless it is the topmost
            folder. Nor are those in relative folders of PATH, which lead into whatever folder the command was started in.
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
