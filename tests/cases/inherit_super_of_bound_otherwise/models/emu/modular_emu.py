from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def up(self, x):
        return super().up(x)

    def forward(self, x):
        x = x + 1
        return super().forward(x)

    def down(self, x):
        return super().down(x)


__all__ = ["EmuMLP"]
