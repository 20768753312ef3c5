"""The files of the examples: a model `old`, and a modular file `new` that takes from it."""

from __future__ import annotations

from modular_converter.findings import Example


_OLD_MLP = "from torch import nn\n\n\nclass OldMLP(nn.Module):\n"


def examples(*beside: tuple[str, str], bad: str, good: str) -> tuple[Example, Example]:
    """Two texts of the modular file of `new`, each with the files beside it."""
    modular = "models/new/modular_new.py"
    return (*beside, (modular, bad)), (*beside, (modular, good))


def modeling_old(text: str) -> tuple[str, str]:
    """The file with the models of `old`."""
    return "models/old/modeling_old.py", text


def old_mlp(body: str) -> tuple[str, str]:
    """The file with the models of `old`: the module `OldMLP` alone."""
    return modeling_old(f"{_OLD_MLP}{body}")


def configuration_old(text: str) -> tuple[str, str]:
    """The file with the configuration of `old`."""
    return "models/old/configuration_old.py", text


def new_mlp(body: str) -> str:
    """A modular file whose `NewMLP` inherits from `OldMLP`, and which exports it."""
    heir = f"class NewMLP(OldMLP):\n{body}"
    return f'from ..old.modeling_old import OldMLP\n\n\n{heir}\n\n__all__ = ["NewMLP"]\n'


OLD_MLP = old_mlp("""\
    def forward(self, hidden_states):
        return hidden_states
""")
"""A neighbour that defines `OldMLP`."""

NEW_MLP = new_mlp("    pass\n")
"""A modular file whose `NewMLP` inherits from `OldMLP` without a change."""
