from abc import ABCMeta
from typing import NamedTuple, Protocol, TypedDict


class LlamaPair(NamedTuple):
    first: int
    second: int = 2


class LlamaReader(Protocol):
    def read(self): ...


class LlamaKeys(TypedDict):
    key: int


class LlamaRoot:
    def __init_subclass__(cls, tag="none"):
        cls.tag = tag


class LlamaTagged(LlamaRoot, tag="llama"):
    size = 1


class LlamaPlain(metaclass=ABCMeta):
    size = 1
