from torch import nn

from ...modeling_utils import PreTrainedModel
from ..llama.modeling_llama import LlamaHead, LlamaLayer, LlamaModel, LlamaPreTrainedModel


class NewPreTrainedModel(LlamaPreTrainedModel):
    def _init_weights(self, module):
        PreTrainedModel._init_weights(self, module)
        module.weight = 2


class NewModel(LlamaModel):
    # `PreTrainedModel` is part of the name of the base.
    def __init__(self, config):
        PreTrainedModel.__init__(self, config)
        self.own = 1


class NewLayer(LlamaLayer):
    def __init__(self, config):
        nn.Module.__init__(self)
        self.own = 1


class NewHead(LlamaHead):
    def __init__(self, config):
        nn.Module.__init__(self)
        self.own = 1

    def reset(self):
        # Another method, and a class that is no base: both stay.
        nn.Module.eval(self)
        nn.Linear.reset(self)
