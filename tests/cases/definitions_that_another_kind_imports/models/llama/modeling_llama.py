from .configuration_llama import LLAMA_WIDTH, LlamaConfig, llama_size


class LlamaModel:
    def __init__(self, config: LlamaConfig):
        self.width = config.size + LLAMA_WIDTH + llama_size()

    def late(self):
        from .configuration_llama import LLAMA_LATE

        return LLAMA_LATE
