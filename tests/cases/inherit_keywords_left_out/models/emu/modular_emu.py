from ..llama.modeling_llama import LlamaLayer, LlamaMLP


class EmuMLP(LlamaMLP):
    size = 1


class EmuLayer(LlamaLayer):
    pass
