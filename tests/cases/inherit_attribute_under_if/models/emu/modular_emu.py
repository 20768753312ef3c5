from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    if False:
        flag = 2


__all__ = ["EmuMLP"]
