import torch.utils.checkpoint
from torch import nn

from ...utils import is_vision_available


if is_vision_available():
    from .image_processing_llama import LlamaImageProcessorKwargs, smart_resize


class LlamaNorm(nn.Module):
    pass


class LlamaGate(nn.Module):
    pass


class LlamaMLP(nn.Module):
    def forward(self, x):
        return smart_resize(x), LlamaImageProcessorKwargs
