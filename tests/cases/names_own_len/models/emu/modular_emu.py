from ..llama.modeling_llama import LlamaMLP


def len(x):
    return 100


class EmuMLP(LlamaMLP):
    pass


__all__ = ["EmuMLP"]
