import torch
import torch.utils.checkpoint
from torch import nn

from transformers.models.new.configuration_new import NewConfig

from ...utils import is_vision_available
from ..llama.image_processing_llama import LlamaImageProcessorKwargs
from ..llama.modeling_llama import LlamaGate, LlamaMLP


if is_vision_available():
    from ..llama.modeling_llama import (
        LlamaNorm,  # used as it is
    )


class NewImageProcessorKwargs(LlamaImageProcessorKwargs):
    pass


class NewMLP(LlamaMLP):
    def __init__(self, config: NewConfig):
        nn.Module.__init__(self)
        self.gate = LlamaGate()
        self.norm = LlamaNorm(torch.float32)
