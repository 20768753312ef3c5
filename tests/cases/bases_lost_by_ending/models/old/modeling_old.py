from torch import nn

from ...generation import GenerationMixin


class OldMLP(nn.Module):
    def forward(self, x):
        return x


class OldModel(nn.Module, GenerationMixin):
    def forward(self, x):
        return x
