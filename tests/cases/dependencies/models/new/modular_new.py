from torch import nn

from ..bert.modeling_bert import scale
from ..llama.modeling_llama import LlamaAttention
from .configuration_new import NewConfig


def own_helper(x):
    return x + 1


# Takes the place of the neighbour's, whose own helper is then not needed.
def rotate(x):
    return own_helper(x)


# What the neighbour would be asked for under this name: it is not pulled.
class NewNorm(nn.Module):
    def forward(self, x):
        return scale(x)


class NewAttention(LlamaAttention):
    config: NewConfig
