from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__(self, config=None):
        self.scale = 1
        super().__init__(config)
