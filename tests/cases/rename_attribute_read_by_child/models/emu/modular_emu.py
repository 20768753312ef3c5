from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def g(self):
        return self.llama


__all__ = ["EmuMLP"]
