from torch import nn

from ...generation import GenerationMixin
from ...modeling_utils import PreTrainedModel
from ..old.modeling_old import OldMLP, OldModel


class Extra:
    def forward(self, x):
        return 1


class NewMLP(OldMLP, Extra):
    # `super()` would reach `nn.Module.forward` first.
    def forward(self, x):
        return Extra.forward(self, x)

    def reset(self):
        nn.Module.reset(self)


class NewModel(OldModel):
    def __init__(self, config):
        PreTrainedModel.__init__(self, config)

    # Both are overridden in `NewPreTrainedModel`, which `super()` would reach first.
    def _init_weights(self, module):
        PreTrainedModel._init_weights(self, module)

    def generate(self):
        return GenerationMixin.generate(self)

    def prepare(self):
        return GenerationMixin.prepare(self)
