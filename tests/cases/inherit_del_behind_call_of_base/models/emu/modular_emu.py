from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__(self, config):
        self.early = 1
        super().__init__(config)
        del self.width
