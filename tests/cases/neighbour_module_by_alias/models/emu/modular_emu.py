import models.llama.modeling_llama as llama

from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def forward(self, x):
        return llama.scale(x)
