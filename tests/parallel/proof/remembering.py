"""Places in which a model may keep a number that its first call has computed, each with the ways to write and read it."""

from __future__ import annotations

import array
import collections
import functools
import queue
import threading
import types
import weakref

import numpy as np
import torch

from tests.parallel.proof import another_file


TABLE: dict[str, torch.Tensor] = {}
NUMBER = None


class Box:
    """An object of an own class, which has an attribute for all of its objects, too."""

    shared = None


class Slotted:
    __slots__ = ("number",)


class Registry(dict):
    """A dictionary that refuses plain assignments."""

    def __setitem__(self, key, value):
        raise TypeError


class Place:
    """A place that is an attribute of the model: ``held``. Others are below."""

    made = types.SimpleNamespace

    def put(self, model, number):
        model.held.number = number

    def get(self, model):
        return getattr(model.held, "number", None)


class InSet(Place):
    made = set

    def put(self, model, number):
        model.held.add(number)

    def get(self, model):
        return next(iter(model.held), None)


class InDeque(InSet):
    made = staticmethod(lambda: collections.deque(maxlen=2))

    def put(self, model, number):
        model.held.append(number)


class InArray(InDeque):
    made = staticmethod(lambda: array.array("d"))


class InQueue(Place):
    made = queue.SimpleQueue

    def put(self, model, number):
        model.held.put(number)

    def get(self, model):
        if model.held.empty():
            return None
        number = model.held.get()
        model.held.put(number)
        return number


class InBox(Place):
    made = Box


class InSlots(Place):
    made = Slotted


class InLocal(Place):
    made = threading.local


class InRegistry(Place):
    made = Registry

    def put(self, model, number):
        model.held.update(number=number)

    def get(self, model):
        return model.held.get("number")


class InTuple(Place):
    made = staticmethod(lambda: (types.SimpleNamespace(deep=[{}]),))

    def put(self, model, number):
        model.held[0].deep[0]["number"] = number

    def get(self, model):
        return model.held[0].deep[0].get("number")


class InTensor(Place):
    made = staticmethod(lambda: torch.zeros(1))

    def put(self, model, number):
        model.held.fill_(number)

    def get(self, model):
        return model.held.clone() if model.held.any() else None


class InNumpy(InTensor):
    made = staticmethod(lambda: np.zeros(1))

    def put(self, model, number):
        model.held[0] = number

    def get(self, model):
        return float(model.held[0]) or None


class InConfig(Place):
    made = staticmethod(lambda: None)

    def put(self, model, number):
        model.config.number = number

    def get(self, model):
        return getattr(model.config, "number", None)


class OnWeight(InConfig):
    def put(self, model, number):
        model.extra.weight.number = number

    def get(self, model):
        return getattr(model.extra.weight, "number", None)


class InModelClass(InConfig):
    def put(self, model, number):
        type(model).number = number

    def get(self, model):
        return getattr(type(model), "number", None)


class InTableOfClass(InConfig):
    def put(self, model, number):
        type(model).table["number"] = number

    def get(self, model):
        return type(model).table.get("number")


class InBoxClass(InBox):
    def put(self, model, number):
        Box.shared = number

    def get(self, model):
        return Box.shared


class InGlobalTable(InConfig):
    def put(self, model, number):
        TABLE["number"] = number

    def get(self, model):
        return TABLE.get("number")


class InGlobal(InConfig):
    def put(self, model, number):
        global NUMBER
        NUMBER = number

    def get(self, model):
        return NUMBER


class InAnotherFile(InConfig):
    def put(self, model, number):
        another_file.remember(number)

    def get(self, model):
        return another_file.remembered()


class InFunction(InConfig):
    def put(self, model, number):
        another_file.remember.number = number

    def get(self, model):
        return getattr(another_file.remember, "number", None)


def _closure():
    kept = []

    def both(number=None):
        if number is not None:
            kept.append(number)
        return next(iter(kept), None)

    return both


def _nonlocal():
    kept = None

    def both(number=None):
        nonlocal kept
        kept = kept if number is None else number
        return kept

    return both


def default(number=None, kept=[]):  # noqa: B006
    if number is not None:
        kept.append(number)
    return next(iter(kept), None)


class InClosure(Place):
    made = staticmethod(_closure)

    def put(self, model, number):
        model.held(number)

    def get(self, model):
        return model.held()


class InNonlocal(InClosure):
    made = staticmethod(_nonlocal)


class InDefaultArgument(InClosure):
    made = staticmethod(lambda: default)


class InCachedFunction(InConfig):
    """A cached function whose argument does not name the model; it stands in front of a table."""

    def put(self, model, number):
        TABLE["once"] = number

    def get(self, model):
        return cached() if "once" in TABLE else None


@functools.lru_cache
def cached():
    return TABLE["once"]


class InWeakTable(InConfig):
    def put(self, model, number):
        WEAK[Box] = number

    def get(self, model):
        return WEAK.get(Box)


WEAK = weakref.WeakKeyDictionary()


class InGenerator(Place):
    """A generator of random numbers that the first call moves on."""

    made = torch.Generator

    def put(self, model, number):
        model.held.manual_seed(1 + int(1e6 * abs(float(number))))

    def get(self, model):
        seed = model.held.initial_seed()
        return None if seed == torch.Generator().initial_seed() else seed / 1e6


PLACES = [one for one in list(globals().values()) if isinstance(one, type) and issubclass(one, Place)]
