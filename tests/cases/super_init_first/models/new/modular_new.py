from ..llama.modeling_llama import LlamaBlock


class NewBlock(LlamaBlock):
    def __init__(self, config):
        self.first = config.first
        super().__init__(config)
        self.second = config.second
