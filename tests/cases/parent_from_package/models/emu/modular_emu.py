from ..llama import LlamaMLP, scale


class EmuMLP(LlamaMLP):
    def forward(self, x):
        x = scale(x)
        return super().forward(x)
