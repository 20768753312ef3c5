"""Runs that leave a model unchanged, and the state that they restore.

Some forwards write to weights, such as embeddings with ``max_norm``, and some keep computed values, with which a later
run does not use the weights behind them.

Copies of a model share the state of its classes, of their files, and of functions; all other state is the model's own.
Objects of torch, of the standard library and of this package are skipped, except containers: restoring loggers, locks and
groups of ranks would change objects that belong to no model.

The library's files outside of its models are left out: they keep no state of a model.
"""

from __future__ import annotations

import argparse
import array
import collections
import contextlib
import dataclasses
import functools
import queue
import random
import sys
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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


def _refill(base: Any, fill: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Restore what a container holds by the methods of its plain class."""

    def give(value: Any, was: Any) -> None:
        base.clear(value)
        fill(value, was)

    return give


def _give_entries_of_array(value: Any, was: Any) -> None:
    value[... if isinstance(value, numpy.ndarray) else slice(None)] = was


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
_PARTS = Handling(_nothing, _nothing, lambda value, was: value)
_METHOD = Handling(_nothing, _nothing, lambda value, was: (value.__func__,))
_SLOTS = Handling(_take_slots, _give_slots, lambda value, was: was.values())
_LRU: type = type(functools.lru_cache(_nothing))
_KINDS: dict[type, Handling] = {
    dict: Handling(lambda value: dict(_base(value).items(value)), _give_entries, _entries),
    list: Handling(list, _refill(list, list.extend), _items),
    set: Handling(list, _refill(set, set.update), _items),
    collections.deque: Handling(list, _refill(collections.deque, collections.deque.extend), _items),
    tuple: _PARTS,
    frozenset: _PARTS,
    bytearray: Handling(bytes, _give_entries_of_array, _nothing),
    array.array: Handling(lambda value: value[:], _give_entries_of_array, _nothing),
    numpy.ndarray: Handling(lambda value: value.copy(), _give_entries_of_array, _nothing),
    random.Random: Handling(lambda value: value.getstate(), lambda value, was: value.setstate(was), _nothing),
    torch.Generator: Handling(lambda value: value.get_state(), lambda value, was: value.set_state(was), _nothing),
    torch.Tensor: _ATTRIBUTES,
    threading.local: _ATTRIBUTES,
    types.FunctionType: Handling(lambda value: dict(value.__dict__), _give_attributes, _parts_of_function),
    types.CellType: Handling(_take_cell, _give_cell, _items),
    types.MethodType: Handling(_nothing, _nothing, lambda value, was: (value.__self__, value.__func__)),
    functools.partial: Handling(_nothing, _nothing, lambda value, was: (value.func, value.args, value.keywords)),
    staticmethod: _METHOD,
    classmethod: _METHOD,
    property: Handling(_nothing, _nothing, lambda value, was: (value.fget, value.fset)),
    _LRU: Handling(_take_cached, _give_cached, lambda value, was: (value.__wrapped__,)),
}


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


class State:
    """The contents of the mutable objects that can be reached from a model.

    Attributes:
        classes: of the objects and among them, without foreign ones.
        functions: among the objects; their contents belong to the shared state.
        tensors: among the objects, with weights.
        unknown: classes of objects whose contents cannot be copied.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self.classes: dict[type, None] = {}
        self.functions: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        self.unknown: dict[str, None] = {}
        self._empty: list[dict[Any, Any]] = []
        self._entries: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._others: list[tuple[Handling, Any, Any]] = []
        self._walk(list(roots))

    def give_back(self) -> None:
        """Restore the contents of the objects."""
        for empty in self._empty:
            if empty:
                empty.clear()
        for entries, was in self._entries:
            entries_back(entries, was)
        for kind, value, contents in self._others:
            kind.give(value, contents)

    def _walk(self, waiting: list[Any]) -> None:
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            kind = type(value)
            if kind in CONSTANT or id(value) in seen:
                continue
            seen.add(id(value))
            if kind is dict:
                self._entries.append((value, value.copy()))
                waiting += value.keys()
                waiting += value.values()
            elif isinstance(value, torch.nn.Module):
                waiting += self._attributes(value)
            else:
                waiting += self._other(value, kind)

    def _attributes(self, module: torch.nn.Module) -> list[Any]:
        """The values in a module, without its many empty dictionaries of hooks."""
        own = module.__dict__
        self._entries.append((own, own.copy()))
        self.classes[type(module)] = None
        found = []
        for value in own.values():
            kind = type(value)
            if (kind is dict or kind is OrderedDict) and not value:
                self._empty.append(value)
            elif kind not in CONSTANT:
                found.append(value)
        return found

    def _other(self, value: Any, kind: type) -> Iterable[Any]:
        if isinstance(value, types.FunctionType):
            self.functions.append(value)
            return ()
        owner = value if isinstance(value, type) else kind
        if not is_foreign(owner):
            self.classes[owner] = None
        if isinstance(value, (type, types.ModuleType)):
            return ()
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
        if handlings_of(kind) is None:
            self.unknown[kind.__qualname__] = None
        return _contents(value, self._others)


class SharedState:
    """The contents of classes, files and functions, and of the objects that can be reached from them.

    Attributes:
        is_cut: whether there are more than ``most`` objects.
    """

    def __init__(self, holders: Collection[Any], most: int, largest: int) -> None:
        """
        Args:
            holders: classes, modules and functions; other classes and modules are not followed.
            most: the number of objects that are followed.
            largest: the number of entries above which a tensor counts as a weight of another model, and is skipped.
        """
        self._taken: list[tuple[Handling, Any, Any]] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        waiting, seen, followed = list(holders), set[int](), {id(one) for one in holders}
        while waiting and len(seen) < most:
            value = waiting.pop()
            kind = type(value)
            if kind in CONSTANT or id(value) in seen or isinstance(value, torch.nn.Module):
                continue
            seen.add(id(value))
            if isinstance(value, (type, types.ModuleType)) and id(value) not in followed:
                continue
            waiting += _contents(value, self._taken)
            if isinstance(value, torch.Tensor) and value.numel() <= largest:
                self._tensors.append((value, value.detach().clone()))
        self.is_cut = bool(waiting)

    def give_back(self) -> bool:
        """Restore the contents of the objects. Returns whether any had changed."""
        changed = [one for one in self._taken if not is_same(one[0].take(one[1]), one[2])]
        for kind, value, contents in changed:
            kind.give(value, contents)
        moved = [(tensor, was) for tensor, was in self._tensors if not torch.equal(tensor, was)]
        with torch.no_grad():
            for tensor, was in moved:
                tensor.copy_(was)
        return bool(changed or moved)


def _contents(value: Any, taken: list[tuple[Handling, Any, Any]]) -> list[Any]:
    """The values in an object, whose contents are added to ``taken``."""
    found: list[Any] = []
    own: Any = type(value)
    for kind in handlings_of(own) or ():
        contents = kind.take(value)
        taken.append((kind, value, contents))
        found += kind.parts(value, contents)
    return found


# The most objects that are followed from classes and files (a notebook may hold millions), and entries of their tensors.
_MOST_OBJECTS, _LARGEST = 50_000, 1 << 20


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[tuple[str, ...]]:
    """A context that restores a model at its end: weights, attributes with the objects in them, and shared state.

    Yields:
        The state that cannot be restored, in words.
    """
    own = State([model])
    shared, numbers = _shared(own), _Numbers(own.tensors)
    lost = [f"what its code keeps in an object of {kind}" for kind in own.unknown]
    lost += [f"variables of its files beyond {_MOST_OBJECTS} objects"] if shared.is_cut else []
    try:
        yield tuple(lost)
    finally:
        own.give_back()
        shared.give_back()
        numbers.give_back()


@contextlib.contextmanager
def same_attributes(model: torch.nn.Module, shared: bool = False) -> Iterator[None]:
    """The same without weights, and with shared state only if ``shared``."""
    own = State([model])
    outside = _shared(own) if shared else None
    weights = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    numbers = _Numbers(tensor for tensor in own.tensors if id(tensor) not in weights)
    try:
        yield
    finally:
        own.give_back()
        numbers.give_back()
        if outside is not None:
            outside.give_back()


def shared_state(model: torch.nn.Module) -> SharedState:
    """The state that copies of a model share."""
    return _shared(State([model]))


def _shared(own: State) -> SharedState:
    return SharedState([*holders_of(frozenset(own.classes)), *own.functions], _MOST_OBJECTS, _LARGEST)


class _Numbers:
    """The entries of tensors. Their versions do not show all writes: code may write through ``tensor.data``."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        with torch.no_grad():
            found = [tensor for tensor in tensors if not tensor.is_meta]
            self._before = [(tensor, tensor.detach(), tensor.detach().clone()) for tensor in found]

    def give_back(self) -> None:
        """Restore the entries of changed tensors, and their storage."""
        with torch.no_grad():
            for tensor, own, was in self._before:
                is_plain = tensor.layout is torch.strided
                if is_plain and (tensor.data_ptr() != own.data_ptr() or tensor.shape != own.shape):
                    tensor.data = own
                if not (is_plain and torch.equal(tensor, was)):
                    tensor.copy_(was)
