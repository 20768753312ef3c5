from ..llama.modeling_llama import LlamaRotary


class EmuRotary(LlamaRotary):
    def __init__(self, config):
        super().__init__(config)
