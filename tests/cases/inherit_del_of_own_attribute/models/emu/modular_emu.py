from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    a = 5
    del a


__all__ = ["EmuMLP"]
