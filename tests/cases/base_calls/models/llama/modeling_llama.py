from torch import nn

from ...modeling_layers import GradientCheckpointingLayer
from ...modeling_utils import PreTrainedModel


class LlamaPreTrainedModel(PreTrainedModel):
    def _init_weights(self, module):
        module.weight = 1


class LlamaModel(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.dropped = 1


class LlamaLayer(GradientCheckpointingLayer):
    def __init__(self, config):
        super().__init__()
        self.dropped = 1


class LlamaHead(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.dropped = 1
