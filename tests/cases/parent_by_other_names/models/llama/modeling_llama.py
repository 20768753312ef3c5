import sys
from typing import Generic, TypeVar

from ...shared import *
from ..llama4.modeling_llama4 import Llama4Gate


T = TypeVar("T")

if sys.version_info >= (3, 10):

    class LlamaTable(dict):
        pass

else:

    class LlamaTable(list):
        pass


class LlamaNorm:
    def forward(self, x):
        return doubled(x) + LIMIT


LlamaRMSNorm = LlamaNorm


class LlamaStack(Generic[T]):
    def __init__(self):
        self.table = LlamaTable()
        self.gate = Llama4Gate()

    def top(self) -> T:
        return self.table[0]
