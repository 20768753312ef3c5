from ..llama.modeling_llama import LlamaBox, LlamaPair


class EmuBox(LlamaBox[int]):
    pass


class EmuPair(LlamaPair):
    pass


__all__ = ["EmuBox", "EmuPair"]
