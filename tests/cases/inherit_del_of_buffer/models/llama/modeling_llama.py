from torch import nn


class LlamaRotaryEmbedding(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("inv_freq", [size], persistent=False)
        setattr(self, "scaling", size)
        self.size = size
