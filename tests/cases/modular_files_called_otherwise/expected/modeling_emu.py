# This file was automatically generated from models/emu/delta_emu.py.
# Do not edit it, since it is generated again: change delta_emu.py, and run `modular-convert`.
from torch import nn


class EmuMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x):
        return self.up_proj(x) + x
