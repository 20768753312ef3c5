from emulib.models.llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    pass
