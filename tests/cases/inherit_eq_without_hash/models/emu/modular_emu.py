from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __eq__(self, o):
        return False
    def h(self):
        return hash(self)


__all__ = ["EmuMLP"]
