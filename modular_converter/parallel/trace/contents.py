"""The contents of mutable objects, kind by kind: how to copy them (not deep), to restore them, and to list their values.

Objects of torch, of the standard library and of this package are skipped, except containers: restoring loggers, locks and
groups of ranks would change objects that belong to no model.
"""

from __future__ import annotations

import argparse
import array
import collections
import dataclasses
import functools
import queue
import random
import sys
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any

import numpy
import torch


# Values that never change, or hold nothing of a model.
CONSTANT: frozenset[type] = frozenset(
    {type(None), type(...), bool, int, float, complex, str, bytes, range, slice, torch.Size, torch.dtype, torch.device}
    | {torch.layout, torch.memory_format, weakref.ref, types.BuiltinFunctionType}
    | {types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType, types.MethodDescriptorType}
)
MODELS = "transformers.models."
_OWN = __name__.partition(".")[0]
_FOREIGN = sys.stdlib_module_names | {"torch", "numpy", "triton", "pytest", "_pytest", _OWN}
_HOLDERS = (
    types.SimpleNamespace,
    argparse.Namespace,
    queue.Queue,
    weakref.WeakSet,
    *(collections.ChainMap, collections.UserDict, collections.UserList),
    *(weakref.WeakKeyDictionary, weakref.WeakValueDictionary),
)
# Modules of the standard library with iterators, generators, pipes and other objects that only move forward.
_WITH_STATE = {"builtins", "itertools", "_queue", "_io"}


@dataclasses.dataclass(frozen=True)
class Handling:
    """How to copy and to restore the contents of an object, and to list the values in it."""

    take: Callable[[Any], Any]
    give: Callable[[Any, Any], None]
    parts: Callable[[Any, Any], Iterable[Any]]


def is_foreign(kind: type) -> bool:
    """Whether a class does not belong to a model, so that it and its objects are skipped."""
    return _root(kind) in _FOREIGN


def of_a_model(file: Any) -> bool:
    """Whether a Python module may keep state of a model. The library's modules outside of its models do not."""
    name = str(file)
    return name.partition(".")[0] not in _FOREIGN and (name.startswith(MODELS) or not name.startswith("transformers."))


def _root(kind: type) -> str:
    return str(kind.__module__).partition(".")[0]


@functools.cache
def handlings_of(kind: Any) -> tuple[Handling, ...] | None:
    """How to handle the contents of a type's objects; None if they may have contents that cannot be restored."""
    if kind in CONSTANT:
        return ()
    if issubclass(kind, (type, types.ModuleType)):
        return (_CLASS if issubclass(kind, type) else _FILE,)
    if _root(kind) == _OWN or issubclass(kind, weakref.ref):
        return ()
    found = [way for base, way in _KINDS.items() if issubclass(kind, base)]
    if issubclass(kind, _HOLDERS) or not is_foreign(kind):
        found += [_ATTRIBUTES] if kind.__dictoffset__ and not issubclass(kind, torch.Tensor) else []
        found += [_SLOTS] if _slots(kind) else []
    is_known = bool(found) or "__slots__" in vars(kind) or (is_foreign(kind) and _root(kind) not in _WITH_STATE)
    return tuple(found) if is_known else None


def entries_back(value: dict[Any, Any], was: Mapping[Any, Any]) -> None:
    """Restore the entries of a plain dictionary."""
    if value or was:
        value.clear()
        value.update(was)


def is_same(now: Any, was: Any) -> bool:
    """Whether the contents of an object at two times are the same objects."""
    if isinstance(now, dict):
        return now.keys() == was.keys() and all(map(is_, now.values(), was.values()))
    if isinstance(now, (list, tuple)):
        return len(now) == len(was) and all(a is b or type(a) is type(b) is int and a == b for a, b in zip(now, was))
    if isinstance(now, (numpy.ndarray, torch.Tensor)):
        return bool((now == was).all())
    return bool(now == was)


def _nothing(*_: Any) -> Any:
    return ()


def _items(value: Any, was: Any) -> Any:
    return was


def _entries(value: Any, was: Any) -> Iterable[Any]:
    return [*was.keys(), *was.values()]


def _base(value: Any) -> type[dict[Any, Any]]:
    return OrderedDict if isinstance(value, OrderedDict) else dict


def _give_entries(value: Any, was: Mapping[Any, Any]) -> None:
    """Restore entries without the methods of a derived class, which may refuse or change them."""
    base = _base(value)
    base.clear(value)
    for key, entry in was.items():
        base.__setitem__(value, key, entry)


def _give_list(value: Any, was: Any) -> None:
    list.__setitem__(value, slice(None), was)


def _give_set(value: Any, was: Any) -> None:
    set.clear(value)
    set.update(value, was)


def _give_deque(value: Any, was: Any) -> None:
    collections.deque.clear(value)
    collections.deque.extend(value, was)


def _give_numbers(value: Any, was: Any) -> None:
    value[...] = was


def _give_buffer(value: Any, was: Any) -> None:
    value[:] = was


def _give_attributes(value: Any, was: Any) -> None:
    entries_back(value.__dict__, was)


@functools.cache
def _slots(kind: Any) -> tuple[Any, ...]:
    """The slots of a class and of its bases, except foreign ones."""
    bases = [base for base in kind.__mro__ if "__slots__" in vars(base) and not is_foreign(base)]
    return tuple(one for base in bases for one in vars(base).values() if isinstance(one, types.MemberDescriptorType))


def _take_slots(value: Any) -> dict[str, Any]:
    own: Any = type(value)
    return {slot.__name__: getattr(value, slot.__name__) for slot in _slots(own) if hasattr(value, slot.__name__)}


def _give_slots(value: Any, was: Mapping[str, Any]) -> None:
    own: Any = type(value)
    for slot in _slots(own):
        if slot.__name__ in was:
            slot.__set__(value, was[slot.__name__])
        elif hasattr(value, slot.__name__):
            slot.__delete__(value)


def _take_cell(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # a variable that has no value yet
        return ()


def _give_cell(cell: Any, was: tuple[Any, ...]) -> None:
    now = _take_cell(cell)
    if was and not (now and now[0] is was[0]):
        cell.cell_contents = was[0]
    elif now and not was:
        del cell.cell_contents


def _parts_of_function(function: Any, was: Mapping[str, Any]) -> list[Any]:
    """The values in a function of a model's own code: its closure, defaults and attributes."""
    if not of_a_model(function.__module__):
        return []
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    return [*(function.__closure__ or ()), *defaults, *was.values()]


def _take_cached(function: Any) -> Any:
    return function.cache_info() if of_a_model(function.__module__) else None


def _give_cached(function: Any, was: Any) -> None:
    if was is not None and function.cache_info() != was:
        function.cache_clear()


def _take_variables(holder: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(holder).items() if not name.startswith("__")}


def _give_class(kind: Any, was: Mapping[str, Any]) -> None:
    now = _take_variables(kind)
    for name in now.keys() - was.keys():
        type.__delattr__(kind, name)
    for name, value in was.items():
        if name not in now or now[name] is not value:
            type.__setattr__(kind, name, value)


def _give_file(module: Any, was: Mapping[str, Any]) -> None:
    """Restore variables of a file, but keep its later imports: modules, classes and functions under new names."""
    own, now = vars(module), _take_variables(module)
    for name in now.keys() - was.keys():
        if not isinstance(now[name], (type, types.ModuleType, types.FunctionType)):
            del own[name]
    own.update(was)


_CLASS = Handling(_take_variables, _give_class, lambda value, was: was.values())
_FILE = Handling(_take_variables, _give_file, lambda value, was: was.values())
_ATTRIBUTES = Handling(lambda value: dict(value.__dict__), _give_attributes, lambda value, was: was.values())
_SLOTS = Handling(_take_slots, _give_slots, lambda value, was: was.values())
_LRU: type = type(functools.lru_cache(_nothing))
_KINDS: dict[type, Handling] = {
    dict: Handling(lambda value: dict(_base(value).items(value)), _give_entries, _entries),
    list: Handling(list, _give_list, _items),
    set: Handling(list, _give_set, _items),
    collections.deque: Handling(list, _give_deque, _items),
    tuple: Handling(_nothing, _nothing, lambda value, was: value),
    frozenset: Handling(_nothing, _nothing, lambda value, was: value),
    bytearray: Handling(bytes, _give_buffer, _nothing),
    array.array: Handling(lambda value: value[:], _give_buffer, _nothing),
    numpy.ndarray: Handling(lambda value: value.copy(), _give_numbers, _nothing),
    random.Random: Handling(lambda value: value.getstate(), lambda value, was: value.setstate(was), _nothing),
    torch.Generator: Handling(lambda value: value.get_state(), lambda value, was: value.set_state(was), _nothing),
    torch.Tensor: Handling(lambda value: dict(value.__dict__), _give_attributes, lambda value, was: was.values()),
    threading.local: Handling(lambda value: dict(value.__dict__), _give_attributes, lambda value, was: was.values()),
    types.FunctionType: Handling(lambda value: dict(value.__dict__), _give_attributes, _parts_of_function),
    types.CellType: Handling(_take_cell, _give_cell, _items),
    types.MethodType: Handling(_nothing, _nothing, lambda value, was: (value.__self__, value.__func__)),
    functools.partial: Handling(_nothing, _nothing, lambda value, was: (value.func, value.args, value.keywords)),
    staticmethod: Handling(_nothing, _nothing, lambda value, was: (value.__func__,)),
    classmethod: Handling(_nothing, _nothing, lambda value, was: (value.__func__,)),
    property: Handling(_nothing, _nothing, lambda value, was: (value.fget, value.fset)),
    _LRU: Handling(_take_cached, _give_cached, lambda value, was: (value.__wrapped__,)),
}
