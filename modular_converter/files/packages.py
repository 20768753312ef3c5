"""Find packages on disk, by their `__init__.py` and by name. Nothing is imported or executed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from importlib.machinery import PathFinder


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
    """The folder of a package: one that holds `beside`, else an installed one. It is located, never imported."""
    top, dotted = package_of(beside, is_file)
    if dotted.partition(".")[0] == name:
        return top
    if not re.fullmatch(r"[^\W\d]\w*", name):
        return None
    spec = PathFinder.find_spec(name)
    locations = list(spec.submodule_search_locations or []) if spec else []
    return locations[0] if locations else None
