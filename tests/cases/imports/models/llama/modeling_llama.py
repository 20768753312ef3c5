import math
import os as system
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from collections.abc import Callable
from torch import nn, relu
from torch import sigmoid as squash

from ...utils import is_flash_available, is_other_available, logging


if is_flash_available():
    from flash import attend, unused_attend

if is_other_available():
    import other


class LlamaModel(nn.Module):
    def forward(self, x: "Callable[[int], int]"):
        math.floor(1)
        torch.utils.checkpoint.checkpoint(x)
        return F.relu(relu(squash(x))), attend(x), system.sep
