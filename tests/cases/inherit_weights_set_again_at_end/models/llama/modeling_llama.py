import torch
from torch import nn

from ...modeling_utils import PreTrainedModel


class LlamaModel(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.gate = nn.Linear(config.hidden_size, 1)
        self.layers = nn.ModuleList()
        self.post_init()


class LlamaHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, 1)
