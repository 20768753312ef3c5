"""The state that copies of a model share: its classes, their files, and further files of the same package.

The library's files outside of its models are left out: they keep no state of a model.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterable
from typing import Any

from modular_converter.parallel.trace.contents import MODELS, of_a_model


_MOST_FILES = 60


@functools.lru_cache(maxsize=64)
def holders_of(classes: frozenset[type]) -> tuple[Any, ...]:
    """The classes with their bases, and the files, that may hold state of objects of these classes."""
    found = {base for one in classes for base in one.__mro__ if of_a_model(base.__module__)}
    files = _files({one.__module__ for one in found})
    return (*found, *files)


def _files(names: Iterable[str]) -> list[types.ModuleType]:
    """The modules with these names, and the modules of their packages that they import, directly or indirectly."""
    waiting, found = sorted(names), dict[str, types.ModuleType]()
    while waiting and len(found) < _MOST_FILES:
        name = waiting.pop(0)
        module = sys.modules.get(name)
        if module is None or name in found or not of_a_model(name):
            continue
        found[name] = module
        package = name.partition(".")[0] if not name.startswith(MODELS) else name.rpartition(".")[0]
        imported = {_file_of(value) for value in vars(module).values()}
        waiting += sorted(other for other in imported if f"{other}.".startswith(f"{package}."))
    return list(found.values())


def _file_of(value: Any) -> str:
    """The file of a function or a class, or the name of a module; empty for other values."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    return str(value.__module__) if isinstance(value, (type, types.FunctionType)) else ""
