from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def g(self):
        return len([1])


__all__ = ["EmuMLP"]
