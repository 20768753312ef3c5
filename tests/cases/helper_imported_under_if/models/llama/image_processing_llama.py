import math

import torch

from ...image_processing import BaseImageProcessor
from ...utils import is_torchvision_available


if is_torchvision_available():
    import torchvision.transforms.v2.functional as tvF


SIZES = (1, 2)


def half(x):
    return tvF.resize(x / math.pi)


def llama_resize(x):
    """Resize."""
    return half(x) * SIZES[0]


def other(x):
    return x


class LlamaKwargs:
    size: int


class LlamaImageProcessor(BaseImageProcessor):
    def resize(self, x):
        return other(llama_resize(x))
