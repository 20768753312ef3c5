from torch import nn

from .configuration_llama import LlamaConfig


class LlamaRMSNorm(nn.Module):
    """The norm of llama."""


class LlamaMLP(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.norm = LlamaRMSNorm()
