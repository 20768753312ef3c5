"""Hashes of code as it is in this process, together with what was put in its place after it was imported."""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from modular_converter.parallel.modules import is_plain


_DEEPEST = 8
"""Functions inside of closures are followed so far."""


def is_model_code(kind: type[Any]) -> bool:
    """Whether a class is a model's own, not of torch, of Python or of transformers' base classes."""
    first, _, rest = kind.__module__.partition(".")
    return not _is_pinned(first) and (first != "transformers" or rest.startswith("models."))


def function_of(value: Any) -> Any:
    """The function of a method, property or decorated function; any other value itself."""
    value = getattr(value, "__func__", value)
    return value.fget if isinstance(value, property) else value


def names_in(code: CodeType, texts: bool = False) -> Iterator[str]:
    """The names that a function and the functions inside of it read; ``texts``: also texts, which can name an attribute."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant, texts)
        elif texts and isinstance(constant, str):
            yield constant


def hash_of_code(value: Any, without: str = "") -> str:
    """A hash of a function with its defaults and what it closes over; "" for what is no function.

    Args:
        without: a name; code that reads it has no hash.
    """
    digest = hashlib.sha256()
    return digest.hexdigest() if _add(digest, function_of(value), without, 0) else ""


def _add(digest: Any, function: Any, without: str, depth: int) -> bool:
    if not isinstance(function, FunctionType) or depth > _DEEPEST:
        return False
    if without and without in names_in(function.__code__):
        return False
    _add_code(digest, function.__code__)
    named = sorted((function.__kwdefaults__ or {}).items())
    digest.update(repr([one for one in (*(function.__defaults__ or ()), *named) if is_plain(one)]).encode())
    for cell in function.__closure__ or ():
        try:
            inner = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
        if isinstance(inner, FunctionType) and inner is not function and not _add(digest, inner, without, depth + 1):
            return False
        digest.update(repr(inner).encode() if is_plain(inner) else type(inner).__name__.encode())
    return True


def _add_code(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code + repr((code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(repr(constant).encode())


def code_reached(kinds: Iterable[type[Any]]) -> dict[str, str]:
    """Name -> hash or value, of all that the methods of classes can reach by names of their modules.

    The code of torch, of Python and of this package is left out, unless something else stands in its place: its version
    says what it is. So are classes of transformers outside of its models.
    """
    found: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = []
    done: set[type[Any]] = set()

    def add_class(kind: type[Any]) -> None:
        for one in kind.__mro__:
            if one not in done and is_model_code(one):
                done.add(one)
                place = f"{one.__module__}.{one.__qualname__}"
                waiting.extend((f"{place}.{name}", v) for name, v in vars(one).items() if not _is_pythons(name, v))

    for kind in kinds:
        add_class(kind)
    while waiting:
        name, value = waiting.pop()
        if name in found:
            continue
        function = function_of(value)
        if isinstance(function, type):
            add_class(function)
        elif isinstance(function, FunctionType):
            found[name] = hash_of_code(function)
            if inner := getattr(function, "__wrapped__", None):
                waiting.append((f"{name}.__wrapped__", inner))
            if not _is_pinned(function.__module__):
                waiting += _read_globals(function)
        elif isinstance(value, Mapping):
            for place, table in _tables_in(name, value):
                waiting += [(f"{place}[{key!r}]", one) for key, one in table.items() if isinstance(one, FunctionType)]
                found[place] = repr(sorted((repr(key), repr(one)) for key, one in table.items() if is_plain(one)))
        elif isinstance(value, (list, set)):
            found[name] = repr(sorted(map(repr, filter(is_plain, value))))
        elif is_plain(value):
            found[name] = repr(value)
        elif is_model_code(type(value)) and hasattr(value, "__dict__"):
            add_class(type(value))
            found[name] = repr(sorted((key, repr(one)) for key, one in vars(value).items() if is_plain(one)))
    return found


def _tables_in(name: str, value: Any) -> Iterator[tuple[str, dict[Any, Any]]]:
    """The dictionaries that a mapping is, or consists of. Its own methods are not called: some import what they look up."""
    if type(value) is dict:
        yield name, value
        return
    for scope in (value, *type(value).__mro__):
        for key, one in getattr(scope, "__dict__", {}).items():
            if type(one) is dict:
                yield f"{name}.{key}", one


def _is_pythons(name: str, value: Any) -> bool:
    """Whether a member of a class is Python's own, such as ``__slotnames__``, which a first copy of an object sets."""
    return name.startswith("__") and not isinstance(function_of(value), FunctionType)


def _read_globals(function: FunctionType) -> Iterator[tuple[str, Any]]:
    names = {name for name in names_in(function.__code__) if not name.startswith("__")}
    scopes, seen = [(function.__globals__.get("__name__", ""), function.__globals__)], set()
    while scopes:
        place, scope = scopes.pop()
        for name in names & scope.keys():
            value = scope[name]
            if not isinstance(value, ModuleType):
                yield f"{place}.{name}", value
            elif not _is_pinned(value.__name__) and value.__name__ not in seen:
                seen.add(value.__name__)
                scopes.append((value.__name__, vars(value)))


def _is_pinned(place: str | None) -> bool:
    """Whether the code of a module is known by a version: it is of torch, of Python, or of this package."""
    first = (place or "").partition(".")[0]
    return first in ("torch", "modular_converter") or first in sys.stdlib_module_names and first != "__main__"


def own_files(kinds: Iterable[type[Any]]) -> dict[str, str]:
    """Path -> hash of each loaded file that no package installed, if some of the classes are of such files."""
    installed = tuple({os.path.join(path, "") for path in (*sysconfig.get_paths().values(), *site.getsitepackages())})
    loaded = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    files = {name: path for name, path in loaded if path and not path.startswith(installed) and not _is_pinned(name)}
    if not any(one.__module__ in files for kind in kinds for one in kind.__mro__ if is_model_code(one)):
        return {}
    return {
        path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files.values() if os.path.isfile(path)
    }


def replaced_members(scope: Any) -> dict[str, str]:
    """Name -> hash of the functions of a module or class of torch in whose place other code stands."""
    return {
        name: hash_of_code(value)
        for name, value in vars(scope).items()
        if isinstance(value, FunctionType) and not value.__globals__.get("__name__", "").startswith(("torch", "_"))
    }
