from .configuration_llama import LLAMA_SIZES


class LlamaModel:
    def sizes(self):
        return LLAMA_SIZES
