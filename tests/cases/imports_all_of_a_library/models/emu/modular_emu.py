from typing import *

from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def backward(self, x: List[int]):
        return x


__all__ = ["EmuMLP"]
