LLAMA_SIZES = {"small": 1}
LLAMA_NAMES = ["a"]


class LlamaConfig:
    def __init__(self, size="small"):
        self.size = LLAMA_SIZES[size]
        self.names = LLAMA_NAMES
