from ..llama.modeling_llama import LlamaMLP
from .modeling_emu import EmuNorm, helper


class EmuMLP(LlamaMLP):
    norm = EmuNorm

    def forward(self, x):
        return helper(x)
