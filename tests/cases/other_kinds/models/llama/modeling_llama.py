from torch import nn

from .configuration_llama import LlamaConfig


class LlamaModel(nn.Module):
    config_class = LlamaConfig

    def __init__(self, config: LlamaConfig):
        super().__init__()
