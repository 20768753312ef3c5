"""MC307: a prefix under which two classes would have one name."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


NEIGHBOUR = (
    "models/old/modeling_old.py",
    """\
from torch import nn


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


class OldTextMLP(nn.Module):
    def forward(self, hidden_states):
        return 2 * hidden_states
""",
)

RULE = Rule(
    code="MC307",
    name="colliding-prefix",
    severity=Severity.WARNING,
    summary="the prefix of a class is already taken in the neighbour",
    explanation="""\
The name of a class says what everything from its neighbour is to be called. With this one, a renamed class would get
the name of another class that the neighbour already has. The model's own name is used instead.

Begin the class with a name that the neighbour does not use, usually the model's own (`NewMLP`, `NewTextMLP`).
""",
    bad=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class OldTextMLP(OldMLP):
    pass


__all__ = ["OldTextMLP"]
""",
        ),
    ),
    good=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewTextMLP(OldMLP):
    pass


__all__ = ["NewTextMLP"]
""",
        ),
    ),
)


def diagnose(location: Location, neighbour: str, prefix: str, taken: str, chosen: str) -> Diagnostic:
    """`taken` is the class of `neighbour` that `prefix` collides with, `chosen` the prefix that is used instead."""
    return Diagnostic(
        RULE,
        location,
        f"the prefix `{prefix}` collides with `{taken}` of {neighbour}; `{chosen}` is used instead",
        help=f"Begin the classes that inherit from {neighbour} with another name, such as `{chosen}`.",
    )
