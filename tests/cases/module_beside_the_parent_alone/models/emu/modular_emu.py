from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import LlamaMLP
from ..llama.taken import TAKEN


class EmuConfig(LlamaConfig):
    pass


class EmuMLP(LlamaMLP):
    def backward(self):
        return TAKEN
