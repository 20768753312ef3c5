from ..llama.modeling_llama import LlamaCapture, LlamaRebind, LlamaWalk


class EmuCapture(LlamaCapture):
    def __init__(self, config):
        super().__init__(config)
        config = 100
        self.size = config


class EmuWalk(LlamaWalk):
    def __init__(self, config):
        super().__init__(config)
        walk = 3
        self.length = walk


class EmuRebind(LlamaRebind):
    def __init__(self, x):
        self.show = lambda: x
        super().__init__(x)
