from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def gone(self, x):
        return x
