from ..llama.modeling_llama import LlamaBlock, LlamaGate, LlamaLayer, LlamaPlain


class EmuLayer(LlamaLayer):
    def __init__(self, size):
        size = size + 1
        super().__init__(size)


class EmuBlock(LlamaBlock):
    def __init__(self, size, **kwargs):
        kwargs.setdefault("pad", 3)
        super().__init__(size, **kwargs)


class EmuGate(LlamaGate):
    def __init__(self, config):
        factor = 3
        super().__init__(config, scale=factor)


class EmuPlain(LlamaPlain):
    def __init__(self, config):
        self.down = config.size
        super().__init__(config)
