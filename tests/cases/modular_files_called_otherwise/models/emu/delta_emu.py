from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def forward(self, x):
        return self.up_proj(x) + x
