"""Find packages on disk, by their `__init__.py` and by name. Nothing is imported or executed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder

from modular_converter.settings.parent_folders import INSTALLED, PROJECT_MARKS, upwards


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
