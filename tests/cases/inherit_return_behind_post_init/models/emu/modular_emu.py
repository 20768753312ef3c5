from ..llama.modeling_llama import LlamaModel


class EmuModel(LlamaModel):
    def __init__(self, config):
        super().__init__(config)
        if not config.has_head:
            return
        self.head = config.hidden_size
