"""Find packages on disk, by their `__init__.py` and by name, without importing them; find programs on PATH, but none
that the tree under check brings along.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder

from modular_converter.settings.parent_folders import INSTALLED, PROJECT_MARKS, is_below, upwards


def package_of(folder: str, is_file: Callable[[str], bool] = os.path.isfile) -> tuple[str, str]:
    """The top folder of the package that `folder` lies in, and the dotted name of `folder` in it.

    A folder belongs to a package as long as it holds an `__init__.py`.
    """
    parts: list[str] = []
    while is_file(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.append(name)
    return (os.path.join(folder, parts[-1]) if parts else folder), ".".join(reversed(parts))


def find_package(name: str, beside: str, is_file: Callable[[str], bool] = os.path.isfile) -> str | None:
    """The folder of the package that files in the folder `beside` import as `name`. It is located, never imported.

    It is the nearest one of these:

    1. a package of this name that `beside` lies in, also while folders between the two lack their `__init__.py`;
    2. a package of this name at the top of the project that `beside` lies in, or in its folder `src`;
    3. the installed package;
    4. where none is installed: a folder of this name without `__init__.py`, in the places of 1 and 2.

    Inside of a checkout the installed package of the same name holds other code, so it comes last.
    """
    if not re.fullmatch(r"[^\W\d]\w*", name):
        return None
    folders = list(_folders_of(name, beside, is_file))
    packages = (one for one in folders if is_file(os.path.join(one, "__init__.py")))
    if package := next(packages, None):
        return package
    spec = PathFinder.find_spec(name)
    locations = list(spec.submodule_search_locations or []) if spec else []
    has_code = spec is not None and spec.origin is not None
    return next((one for one in ([] if has_code else folders)), None) or (locations[0] if locations else None)


def _folders_of(name: str, beside: str, is_file: Callable[[str], bool]) -> Iterator[str]:
    """The folders of a name that may be a top-level package for a file in `beside`, from the nearest one on."""
    for folder in upwards(beside):
        parent, here = os.path.split(folder)
        if here in INSTALLED:
            return
        is_top = any(os.path.exists(os.path.join(folder, mark)) for mark in PROJECT_MARKS)
        may_be = here == name and (not is_top or is_file(os.path.join(folder, "__init__.py")))
        if may_be and not is_file(os.path.join(parent, "__init__.py")):
            yield folder
        if is_top:
            yield from (
                one for one in (os.path.join(folder, "src", name), os.path.join(folder, name)) if os.path.isdir(one)
            )
            return


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
