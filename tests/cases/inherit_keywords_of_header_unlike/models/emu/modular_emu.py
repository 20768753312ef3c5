from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP, kind=None):
    pass


__all__ = ["EmuMLP"]
