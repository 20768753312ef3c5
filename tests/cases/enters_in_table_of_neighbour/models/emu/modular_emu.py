from ..llama.modeling_llama import LlamaMLP, register_llama, show


@register_llama("triple")
def triple(x):
    return twice(x) + x


def twice(x):
    return 2 * x


@show.register
def show_int(x: int):
    return "int"


class EmuMLP(LlamaMLP):
    act = "triple"


__all__ = ["EmuMLP"]
