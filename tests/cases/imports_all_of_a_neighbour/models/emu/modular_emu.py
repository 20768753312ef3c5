from ..llama.modeling_llama import *


class EmuMLP(LlamaMLP):
    def size(self):
        self.width = scaled(math.ceil(1.5))
        return super().size()


class EmuLayer(LlamaLayer):
    pass


__all__ = ["EmuLayer", "EmuMLP"]
