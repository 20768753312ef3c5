import torch
from torch import nn

from ..llama.modeling_llama import LlamaHead, LlamaModel


class EmuModel(LlamaModel):
    def __init__(self, config):
        super().__init__(config)
        self.scale = nn.Linear(config.hidden_size, 1)
        self.layers.append(self.scale)
        nn.init.zeros_(self.gate.weight)
        with torch.no_grad():
            self.scale.bias.fill_(1.0)


class EmuHead(LlamaHead):
    def __init__(self, config):
        super().__init__(config)
        nn.init.zeros_(self.gate.weight)


__all__ = ["EmuHead", "EmuModel"]
