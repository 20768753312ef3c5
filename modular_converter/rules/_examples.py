"""The files of the examples: a model `old`, and a modular file `new` that takes from it."""

from __future__ import annotations


def modeling_old(text: str) -> tuple[str, str]:
    """The file with the models of `old`."""
    return "models/old/modeling_old.py", text


def configuration_old(text: str) -> tuple[str, str]:
    """The file with the configuration of `old`."""
    return "models/old/configuration_old.py", text


def modular_new(text: str) -> tuple[str, str]:
    """The modular file of `new`."""
    return "models/new/modular_new.py", text


def new_mlp(code: str) -> tuple[str, str]:
    """The modular file of `new` that imports `OldMLP`, has this code, and exports `NewMLP`."""
    return modular_new(f'from ..old.modeling_old import OldMLP\n\n\n{code}\n\n__all__ = ["NewMLP"]\n')


OLD_MLP = modeling_old("""\
from torch import nn


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return hidden_states
""")
"""A neighbour that defines `OldMLP`."""

NEW_MLP = new_mlp("""\
class NewMLP(OldMLP):
    pass
""")
"""A modular file whose `NewMLP` inherits from `OldMLP` without a change."""
