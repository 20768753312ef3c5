from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    scale = 6
