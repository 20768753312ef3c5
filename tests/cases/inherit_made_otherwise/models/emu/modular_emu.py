from typing import Protocol

from ..llama.modeling_llama import LlamaKeys, LlamaPair, LlamaPlain, LlamaReader, LlamaTagged


class EmuPair(LlamaPair):
    third: int = 3


class EmuOtherPair(LlamaPair):
    def __new__(cls, first):
        return tuple.__new__(cls, (first, first))


class EmuNotedPair(LlamaPair):
    def note(self):
        self.noted = True


class EmuLongPair(LlamaPair):
    def length(self):
        return self.first + self.second


class EmuReader(LlamaReader):
    def read(self):
        return 1


class EmuReaders(LlamaReader, Protocol):
    def read_all(self): ...


class EmuKeys(LlamaKeys, total=False):
    other: int


class EmuTagged(LlamaTagged):
    size = 2


class EmuPlain(LlamaPlain, flag=True):
    size = 2
