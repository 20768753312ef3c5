from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP, kind="gated"):
    pass


__all__ = ["EmuMLP"]
