from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def forward(self):
        return super().forward() + "?"


class EmuOtherMLP(LlamaMLP):
    size = 2


__all__ = ["EmuMLP", "EmuOtherMLP"]
