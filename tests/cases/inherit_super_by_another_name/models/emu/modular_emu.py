from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def f(self, x):
        parent = super
        return parent().f(x) + 1


__all__ = ["EmuMLP"]
