import torch
from torch import nn


class LlamaEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.length = config.length

        self.places = nn.Embedding(self.length, config.width)
        self.places.requires_grad_(False)

        self.table = nn.Embedding(self.length, config.width)
        self.table.weight.requires_grad = False
        if config.frozen:
            self.table.eval()

        self.head = nn.Linear(config.width, config.width)
        self.freeze()

        self.score = nn.Linear(config.width, 1)
        self.score.bias = None

        self.layers = nn.ModuleList()
        self.layers.append(nn.Linear(config.width, config.width))
        self.blocks = nn.ModuleList([nn.Linear(1, 1)])
        self.blocks[0] = nn.Linear(2, 2)
        self.norm = nn.LayerNorm(config.width)
        self.norm = torch.compile(self.norm)
        self.groups = {}
        self.fill()
        self.post_init()

    def freeze(self):
        self.head.requires_grad_(False)

    def fill(self):
        self.groups.update(a=1)
