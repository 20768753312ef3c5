# This file was automatically generated from models/emu/modular_emu.py.
# Do not edit it, since it is generated again: change modular_emu.py, and run `modular-convert`.
from torch import nn


class EmuConv: pass


class EmuMLP(nn.Module):
	"""The MLP of Emu."""

	def __init__(self, config):
		super().__init__()
		self.up_proj = nn.Linear(8, 8)
		self.dropout = nn.Dropout(0.1)

	def forward(self, hidden_states):
		return self.dropout(self.up_proj(hidden_states))
	def extra(self):
		return 1


setattr(EmuMLP, "tag", 6)
