from ..llama.modeling_llama import LlamaRotaryEmbedding


class EmuRotaryEmbedding(LlamaRotaryEmbedding):
    def __init__(self, size):
        super().__init__(size)
        del self.inv_freq
        del self.scaling
        del self.size


__all__ = ["EmuRotaryEmbedding"]
