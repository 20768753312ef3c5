"""What code may change on the modules of a model beside its weights, and a fast look whether it has.

Attributes of any name, ``training``, the inside of lists, dicts and plain objects, and buffers, replaced or changed in
place. A model in use is looked at before each call, so the look must be fast: a module whose dictionary has the version of
the last look has the same attributes, and what they hold is compared in loops that run in C.
"""

from __future__ import annotations

import contextlib
import itertools
import marshal
import operator
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy
import torch

from modular_converter.parallel.modules import OF_TORCH, PLAIN_TYPES, is_plain, is_same_value, memory_of
from modular_converter.parallel.torch_private import dict_version


class GONE:
    """The value of an attribute that was removed."""


_LISTS, _NO_INSIDE = (list, tuple, deque), (type, FunctionType, MethodType, BuiltinFunctionType, ModuleType)
# Tensors are compared by content too, because ``tensor.data`` has a version of its own: 0.03 ms for a MiB.
_CONTENT_BYTES = 1 << 24
_MOST_INSIDE, _DEEPEST = 2000, 6


@dataclass(frozen=True)
class StateChange:
    """An attribute or buffer of the module at ``path`` that has changed; ``GONE`` stands for none."""

    path: str
    name: str
    old: Any
    value: Any
    is_buffer: bool = False

    @property
    def where(self) -> str:
        return f"{self.path}.{self.name}" if self.path else self.name


def is_data(value: Any, tensors: bool = True) -> bool:
    """Whether a value consists of plain values, arrays and (unless ``tensors`` is False) tensors in lists, tuples, sets and dicts."""
    if isinstance(value, (dict, *_LISTS, set, frozenset)):
        items = (*value.keys(), *value.values()) if isinstance(value, dict) else value
        return all(is_data(one, tensors) for one in items)
    if isinstance(value, torch.Tensor):
        return tensors
    return type(value) in PLAIN_TYPES or isinstance(value, (numpy.ndarray, numpy.generic))


class WatchedState:
    """The state of a model's modules when it was last looked at.

    Args:
        skip: names of attributes of the model itself that are not watched.
        stored_alone: watch only what a forward stores: those of torch's own modules store nothing but buffers, so that only
            new attributes are looked for there, and at a module that has got one.
        left_out: objects that are watched elsewhere, such as its configuration, or that nothing changes.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        skip: Iterable[str] = (),
        left_out: Iterable[Any] = (),
        stored_alone: bool = False,
    ) -> None:
        # Not the modules themselves: a model that keeps its own state must not keep itself alive.
        self.by_path: dict[str, Any] = {path: vars(module) for path, module in model.named_modules()}
        own = [path for path, module in model.named_modules() if not type(module).__module__.startswith("torch.nn.")]
        self.watched = frozenset(own if stored_alone else self.by_path)
        self.skip, self.left_out = frozenset(skip), {id(one) for one in left_out}
        # One thread may set what its call has stored while another one looks. It is held for no longer than that.
        self.lock = threading.RLock()
        self.note()

    def note(self) -> None:
        """Take the state of now as the one to compare with."""
        self.scopes = list(self.by_path.values())
        self.lengths = list(map(len, self.scopes))
        self.looked_at = [scope for path, scope in self.by_path.items() if path in self.watched]
        # Before the values: another thread may write meanwhile.
        self.versions = list(map(dict_version, self.looked_at))
        self.unwatched = {path: scope for path, scope in self.by_path.items() if path not in self.watched}
        self.few = list(map(len, self.unwatched.values()))
        found = [
            (scope, name, path)
            for path, scope in self.by_path.items()
            if path in self.watched
            for name in scope
            if name not in OF_TORCH and (path or name not in self.skip)
        ]
        self.owners, self.names = [scope for scope, _, _ in found], [name for _, name, _ in found]
        self.paths = [path for _, _, path in found]
        self.places = {place: n for n, place in enumerate(zip(self.paths, self.names))}
        self.values = list(map(dict.get, self.owners, self.names))
        # An object in several places (a part's copy of the configuration, on each of its layers) is looked into once.
        inside: dict[int, Any] = {}
        for value in self.values:
            if id(value) not in inside:
                inside[id(value)] = self._inside(value)
        self.inside = {n: mark for n, value in enumerate(self.values) if (mark := inside[id(value)]) is not None}
        self._order_inside()
        kept = {path: scope["_buffers"] for path, scope in self.by_path.items()}
        self.registers = [register for path, register in kept.items() if register or path in self.watched]
        self.counts = list(map(len, self.registers))
        self.buffers = {
            (path, name): (register, buffer, _Written(buffer))
            for path, register in kept.items()
            for name, buffer in register.items()
        }
        self.places_of_buffers = [found[0] for found in self.buffers.values()], [name for _, name in self.buffers]
        self.tensors = [buffer for _, buffer, _ in self.buffers.values()]
        marks = [(buffer, mark) for _, buffer, mark in self.buffers.values() if buffer is not None]
        self.viewed = [buffer for buffer, mark in marks if mark.view is not None]
        self.views: list[Any] = [mark.view for _, mark in marks if mark.view is not None]
        self.contents = [mark.content for _, mark in marks if mark.view is not None]
        self.pointers = list(map(torch.Tensor.data_ptr, self.viewed))
        self.others = [one for one in marks if one[1].view is None]

    def differences(self) -> list[StateChange]:
        """What has changed since the last look, which this look replaces."""
        with self.lock:
            versions = list(map(dict_version, self.looked_at))
            inside, buffers = self._changed_inside(), self._changed_buffers()
            added = list(map(len, self.unwatched.values())) != self.few
            if not inside and not buffers and not added and versions == self.versions:
                return []
            there = all(map(dict.__contains__, self.owners, self.names))
            if buffers or not there or list(map(len, self.scopes)) != self.lengths:
                return self._found()
            self.versions, now = versions, list(map(dict.get, self.owners, self.names))
            if not inside and all(map(operator.is_, now, self.values)):
                return []
            return self._replaced(now, inside)

    def _replaced(self, now: list[Any], inside: set[int]) -> list[StateChange]:
        """The differences between attributes of the same names."""
        found = []
        for n, (old, new) in enumerate(zip(self.values, now)):
            if old is new and n not in inside:
                continue
            before = self.inside.pop(n, None)
            self.values[n], mark = new, self._inside(new)
            if mark is not None:
                self.inside[n] = mark
            if _differ(old, new, before, mark):
                found.append(StateChange(self.paths[n], self.names[n], old, new))
        self._order_inside()
        return found

    def accept(self, path: str, name: str, value: Any, is_buffer: bool = False) -> None:
        """Set an attribute or buffer, which is no change."""
        scope = self.by_path[path]
        with self.lock:
            (scope["_buffers"] if is_buffer else scope)[name] = value
            n = self.places.get((path, name))
            if is_buffer or n is None:
                self.note()
                return
            self.values[n] = value
            self.inside.pop(n, None)
            if (mark := self._inside(value)) is not None:
                self.inside[n] = mark
            self._order_inside()

    def _order_inside(self) -> None:
        """Put what is compared in one step beside each other, and each object once."""
        each = {(id(self.values[n]), id(mark)): (self.values[n], mark) for n, mark in self.inside.items()}
        flat = [(value, mark) for value, mark in each.values() if type(mark) is _Flat]
        self.deep = [(value, mark) for value, mark in each.values() if type(mark) is not _Flat]
        self.flat = [value for value, _ in flat]
        self.copies = [mark.copy for _, mark in flat]
        self.kinds = [kind for _, mark in flat for kind in mark.kinds]

    def _changed_inside(self) -> set[int]:
        try:
            same = self.flat == self.copies and list(map(type, _items_of(self.flat))) == self.kinds
        except Exception:  # a comparison of arrays
            same = False
        if same and all(self._inside(value) == mark for value, mark in self.deep):
            return set()
        values, known = self.values, dict[tuple[int, int], bool]()
        for n, mark in self.inside.items():
            which = id(values[n]), id(mark)
            if which not in known:
                known[which] = self._inside(values[n]) != mark
        return {n for n, mark in self.inside.items() if known[id(values[n]), id(mark)]}

    def _changed_buffers(self) -> bool:
        if list(map(len, self.registers)) != self.counts:
            return True
        if not all(map(operator.is_, map(dict.get, *self.places_of_buffers), self.tensors)):
            return True
        if list(map(torch.Tensor.data_ptr, self.viewed)) != self.pointers:  # else the views are of another memory
            return True
        if not all(map(bytes.startswith, self.contents, self.views)):
            return True
        return any(mark.is_old(buffer) for buffer, mark in self.others)

    def _found(self) -> list[StateChange]:
        old = {(path, name): n for n, (path, name) in enumerate(zip(self.paths, self.names))}
        values, inside, buffers, watched = self.values, self.inside, self.buffers, self.watched
        pairs = zip(self.unwatched.items(), self.few)
        new = {(path, name) for (path, scope), count in pairs for name in [*scope][count:]}
        self.watched |= {path for path, _ in new}
        self.note()
        found = []
        for n, (path, name) in enumerate(zip(self.paths, self.names)):
            was = old.pop((path, name), None)
            if was is None and path not in watched and (path, name) not in new:
                continue  # known, of a module that is watched from now on
            if was is None:
                found.append(StateChange(path, name, GONE, self.values[n]))
            elif _differ(values[was], self.values[n], inside.get(was), self.inside.get(n)):
                found.append(StateChange(path, name, values[was], self.values[n]))
        found += [StateChange(path, name, values[n], GONE) for (path, name), n in old.items()]
        for (path, name), (_, buffer, _) in self.buffers.items():
            _, before, known = buffers.pop((path, name), (None, GONE, _Written(None)))
            if buffer is not before or isinstance(buffer, torch.Tensor) and known.is_old(buffer):
                found.append(StateChange(path, name, before, buffer, True))
        return found + [StateChange(path, name, was, GONE, True) for (path, name), (_, was, _) in buffers.items()]

    def _inside(self, value: Any) -> Any:
        """What a value holds, for comparison; None for a value that nothing can change."""
        if is_plain(value) or id(value) in self.left_out or isinstance(value, _NO_INSIDE):
            return None
        if type(value) in (list, dict, set) and all(map(is_plain, value.values() if type(value) is dict else value)):
            return _Flat(value.copy(), list(map(type, _items_of([value]))))
        if type(value) in (list, dict, tuple) and len(value) <= _MOST_INSIDE:
            with contextlib.suppress(ValueError):  # not of Python's own plain types alone
                return marshal.dumps(value, 0)  # tells types apart, in a tenth of the time of a walk
        found = None if isinstance(value, torch.nn.Module) else _inside(value, itertools.count(), 0)
        return None if isinstance(found, _Same) else found  # which object it is, is compared beside this


class _Flat(NamedTuple):
    """A container of plain values, and their types: 1, 1.0 and True are equal."""

    copy: Any
    kinds: list[type[Any]]


def _items_of(values: list[Any]) -> Iterator[Any]:
    """The items of lists and the values of dicts; those of sets have an order that may change."""
    of_each = (value.values() if type(value) is dict else () if type(value) is set else value for value in values)
    return itertools.chain.from_iterable(of_each)


class _Same:
    """An object by its identity; it is kept alive, since another one could get its address."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    __hash__ = object.__hash__


def _inside(value: Any, count: Iterator[int], depth: int) -> Any:
    if type(value) in PLAIN_TYPES:
        return "nan" if value != value else (type(value), value)
    if isinstance(value, torch.Tensor):
        view = _view(value)
        return _Same(value), _mark(value), None if view is None else view.tobytes()
    if depth > _DEEPEST or next(count) > _MOST_INSIDE or isinstance(value, (*_NO_INSIDE, torch.nn.Module)):
        return _Same(value)
    if isinstance(value, _LISTS):
        return type(value), [_inside(item, count, depth + 1) for item in value]
    if isinstance(value, dict):
        return type(value), [(_Same(key), _inside(item, count, depth + 1)) for key, item in value.items()]
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(value)
    if isinstance(value, numpy.ndarray) and value.dtype.kind != "O":
        return value.shape, value.tobytes() if value.nbytes <= _CONTENT_BYTES else _Same(value)
    if hasattr(value, "__dict__") and not callable(value):
        return _Same(value), _inside(vars(value), count, depth + 1)
    return _Same(value)


def _differ(old: Any, new: Any, inside_old: Any, inside_new: Any) -> bool:
    if old is new:
        return bool(inside_old != inside_new)
    return not is_same_value(old, new)


class _Written:
    """Tells whether a tensor was written: by its version, and by its bytes if it is on the CPU.

    ``tensor.data`` has a version of its own, so that the version alone would miss what is written through it.
    """

    def __init__(self, tensor: torch.Tensor | None) -> None:
        self.version, self.view = _mark(tensor), _view(tensor)
        self.content = b"" if self.view is None else self.view.tobytes()

    def is_old(self, tensor: torch.Tensor) -> bool:
        return _mark(tensor) != self.version or self.view is not None and not self.content.startswith(self.view)


def _view(tensor: torch.Tensor | None) -> memoryview | None:
    """The bytes of a tensor on the CPU, as they are now; None for another, or a very large one."""
    if tensor is None or not isinstance(_mark(tensor), tuple) or tensor.layout != torch.strided:
        return None
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type != "cpu" or not 0 < size <= _CONTENT_BYTES or not tensor.is_contiguous():
        return None
    return memory_of(tensor)


def _mark(tensor: torch.Tensor | None) -> Any:
    """Changes when a tensor is written; None for a tensor of another class, such as one whose numbers are elsewhere."""
    if type(tensor) is not torch.Tensor and type(tensor) is not torch.nn.Parameter or tensor is None:
        return None
    if tensor.is_inference():
        return object()  # has no version: counts as changed at each look
    return tensor._version, tensor.data_ptr() if tensor.layout == torch.strided else 0
