import torch
from torch import nn

from ..llama.modeling_llama import LlamaEncoder


class EmuEncoder(LlamaEncoder):
    def __init__(self, config):
        super().__init__(config)
        self.places = nn.Embedding(self.length, config.width, dtype=torch.float32)
        self.table = nn.Embedding(self.length, config.width, dtype=torch.float32)
        self.head = nn.Linear(config.width, 2 * config.width)
        self.score = nn.Linear(config.width, 2)
        self.layers = nn.ModuleList([nn.Linear(config.width, config.width)])
        self.blocks = nn.ModuleList([nn.Linear(config.width, config.width)])
        self.groups = {"b": 2}
