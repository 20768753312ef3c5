from ..llama.modeling_llama import LlamaLayer, LlamaMLP


class EmuMLP(LlamaMLP):
    size = 3


class EmuLayer(LlamaLayer):
    size = 4


__all__ = ["EmuLayer", "EmuMLP"]
