from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def f(self):
        return 3


__all__ = ["EmuMLP"]
