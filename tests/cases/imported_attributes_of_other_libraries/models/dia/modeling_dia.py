import torch
import torch.nn.functional as F
from torch import nn

from ...masking_utils import dialect_mask
from .configuration_dia import DiaConfig


def diamond(x):
    from .other_dia import dial_in

    return torch.diamond(dial_in(x))


class DiaMask(nn.Module):
    def __init__(self, config: DiaConfig):
        super().__init__()
        self.dia_size = config.diameter
        self.register_buffer("dia_mask", torch.zeros(config.diameter))

    def forward(self, x, diagonal=1, align_dia=True):
        mask = torch.triu(x, diagonal=diagonal) + torch.diag(x) + self.dia_mask
        mask = mask + x.diagonal(dim1=0) + x.dial(1) + diamond(x)
        return F.interpolate(mask, align_dia=align_dia, mode="dia") + dialect_mask(x, dialog=self.dialog())
