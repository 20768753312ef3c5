from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def forward(self, x):
        h = self.up
        super().forward(x)
        return h


__all__ = ["EmuMLP"]
