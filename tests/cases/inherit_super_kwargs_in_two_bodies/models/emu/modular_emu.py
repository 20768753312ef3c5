from ..llama.modeling_llama import LlamaGate, LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__(self, size=4, depth=1, **super_kwargs):
        super().__init__(size=size * depth, **super_kwargs)
        self.depth = depth


class EmuGate(LlamaGate):
    def forward(self, scale=2, **super_kwargs):
        super().forward(scale=scale, **super_kwargs)
        return scale


__all__ = ["EmuGate", "EmuMLP"]
