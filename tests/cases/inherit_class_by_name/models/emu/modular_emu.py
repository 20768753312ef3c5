from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    scale = 10

    def size(self):
        return 2

    def overridden(self):
        return 3


__all__ = ["EmuMLP"]
