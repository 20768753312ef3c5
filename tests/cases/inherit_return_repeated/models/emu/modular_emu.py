from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def f(self, x):
        super().f(x)
        self.b = 1
        return x + 1


__all__ = ["EmuMLP"]
