from dataclasses import dataclass

from ..llama.modeling_llama import LlamaOutput, LlamaPlain, LlamaState
from .registry import register


@dataclass
class EmuOutput(LlamaOutput):
    third: int


@dataclass(kw_only=True, order=True)
class EmuOrderedOutput(LlamaOutput):
    third: int


class EmuLongOutput(LlamaOutput):
    third: int = 3


@register
class EmuState(LlamaState):
    pass


@dataclass(eq=False)
class EmuOtherState(LlamaState):
    pass


@dataclass
class EmuPlain(LlamaPlain):
    width: int = 2
