from ..llama.modeling_llama import LlamaMLP


class EmuMLP(LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        del self.up
        del self.up


class EmuTwin(LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.up = 1
        del self.up
        self.down = self.up + 1
