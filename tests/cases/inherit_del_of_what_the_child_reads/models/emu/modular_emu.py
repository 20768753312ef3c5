from ..llama.modeling_llama import LlamaLayer


class EmuLayer(LlamaLayer):
    def __init__(self, config):
        super().__init__(config)
        self.up = 2 * config
        self.down = self.up + 1
        del self.up
