from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    pass


__all__ = ["EmuMLP"]
