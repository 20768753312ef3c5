from ..llama.modeling_llama import LLAMA_ACT, LlamaMLP, register_llama


class EmuMLP(LlamaMLP):
    pass


class EmuTable(LlamaMLP):
    names = sorted(LLAMA_ACT)


@register_llama("triple")
def triple(x):
    return 3 * x


class EmuLast(LlamaMLP):
    count = 0


__all__ = ["EmuLast", "EmuMLP", "EmuTable"]
