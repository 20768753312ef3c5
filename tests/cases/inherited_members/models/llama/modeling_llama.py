import sys
from abc import ABC, abstractmethod
from functools import singledispatchmethod
from typing import Generic, TypeVar


T = TypeVar("T")


class LlamaCounter:
    names = ["llama"]
    act = lambda self, x: x + 1  # noqa: E731

    if sys.byteorder == "little":

        def order(self):
            return "little"
    else:

        def order(self):
            return "big"

    @property
    def width(self):
        return self._width

    @width.setter
    def width(self, value):
        self._width = value

    def total(self, x):
        return x + len(self.names)


class LlamaBackend(ABC):
    @abstractmethod
    def load(self, name):
        return [name]


class LlamaBox(Generic[T]):
    def get(self):
        return self.value

    @singledispatchmethod
    def put(self, value):
        self.value = value

    @put.register
    def _(self, value: str):
        self.value = value.strip()
