from dataclasses import dataclass

from ..llama.modeling_llama import LlamaOutput


@dataclass
class EmuOutput(LlamaOutput):
    logits: int = 1


@dataclass(repr=False)
class EmuQuietOutput(LlamaOutput):
    def __eq__(self, other):
        return super().__eq__(other)


class EmuPlainOutput(LlamaOutput):
    pass


__all__ = ["EmuOutput", "EmuPlainOutput", "EmuQuietOutput"]
