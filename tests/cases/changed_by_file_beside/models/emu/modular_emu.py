from ...shared import scaled
from ..llama.modeling_llama import LlamaLayer, LlamaMLP


class EmuMLP(LlamaMLP):
    def forward(self, x):
        return scaled(x)


class EmuLayer(LlamaLayer):
    pass
