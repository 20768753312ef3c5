from torch import nn

from ...generation import GenerationMixin
from ...modeling_utils import PreTrainedModel


class OldMLP(nn.Module):
    def forward(self, x):
        return x

    def reset(self):
        pass


class OldPreTrainedModel(PreTrainedModel):
    def _init_weights(self, module):
        module.weight = 1

    def generate(self):
        return 1


class OldModel(OldPreTrainedModel, GenerationMixin):
    def forward(self, x):
        return x
