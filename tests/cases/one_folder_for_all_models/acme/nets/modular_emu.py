from torch import nn

from .llama import Attention as LlamaAttention
from .llama import Config, LlamaModel


class Attention(LlamaAttention):
    def __init__(self, config: Config):
        super().__init__(config)
        self.k_norm = nn.LayerNorm(config.hidden_size)
        del self.o_proj

    def forward(self, x):
        return self.k_norm(self.q_proj(x))


class EmuModel(LlamaModel):
    pass


__all__ = ["EmuModel"]
