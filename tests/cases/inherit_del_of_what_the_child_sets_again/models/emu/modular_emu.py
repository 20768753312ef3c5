from ..llama.modeling_llama import LlamaAttention, LlamaLayer, LlamaMLP, LlamaNorm


class EmuMLP(LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.build()
        del self.width


class EmuAttention(LlamaAttention):
    def __init__(self, config):
        if config:
            self.width = 5
        super().__init__(config)
        del self.width


class EmuNorm(LlamaNorm):
    def __init__(self, config):
        super().__init__(config)
        self.width, self.down = 1, 2
        del self.width


class EmuLayer(LlamaLayer):
    def __init__(self, config):
        super().__init__(config)
        vars(self)["width"] = 7
        del self.width
