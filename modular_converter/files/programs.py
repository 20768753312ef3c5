"""Programs that are run, found without trust in the tree that is read."""

from __future__ import annotations

import os


SUFFIX = ".exe" if os.name == "nt" else ""


def program_on_path(name: str, forbidden: str) -> str:
    """The first program of a name in a folder of PATH, "" for none.

    Args:
        name: such as `ruff`, without a suffix.
        forbidden: the folder of the project that is read; programs inside of it are not run, unless it is the topmost
            folder. Nor are those in relative folders of PATH, which lead into whatever folder the command was started in.
    """
    outside = os.path.join(os.path.realpath(forbidden), "") if forbidden else ""
    outside = "" if outside == os.path.dirname(outside) else outside
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name + SUFFIX)
        if not os.path.isabs(folder) or not os.path.isfile(path) or not os.access(path, os.X_OK):
            continue
        real = os.path.join(os.path.realpath(folder), name + SUFFIX), os.path.realpath(path)
        if not outside or not any(one.startswith(outside) for one in real):
            return path
    return ""
