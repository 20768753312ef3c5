"""The smallest parent and child, which the examples of several rules share."""

from __future__ import annotations


OLD_MLP = (
    "models/old/modeling_old.py",
    """\
from torch import nn


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return hidden_states
""",
)
"""A neighbour that defines `OldMLP`."""

NEW_MLP = (
    "models/new/modular_new.py",
    """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    pass


__all__ = ["NewMLP"]
""",
)
"""A modular file whose `NewMLP` inherits from it without a change."""
