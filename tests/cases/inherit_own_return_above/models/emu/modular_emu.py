from ..llama.modeling_llama import LlamaHead, LlamaTail


class EmuHead(LlamaHead):
    def __init__(self, config):
        super().__init__(config)
        self.size = 2
        if not config:
            return
        self.head = "big"
        self.rate = 1 / config


class EmuTail(LlamaTail):
    def __init__(self, config):
        super().__init__(config)
        if not config:
            return
        del self.head
