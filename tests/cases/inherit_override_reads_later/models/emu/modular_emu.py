from ..llama.modeling_llama import LlamaMLP, LlamaNorm


class EmuMLP(LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.width = self.width * 2
        self.scale = self.depth**-0.5


class EmuNorm(LlamaNorm):
    def __init__(self, config):
        self.factor = 2
        super().__init__(config)
        self.scale = self.eps * self.factor
