"""MC110: modular files that wait for each other's generated files."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


FIRST = (
    "models/first/modular_first.py",
    """\
from torch import nn

from ..second.modeling_second import SecondMLP


class FirstAttention(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


class FirstMLP(SecondMLP):
    pass


__all__ = ["FirstAttention", "FirstMLP"]
""",
)

RULE = Rule(
    code="MC110",
    name="cycle",
    severity=Severity.ERROR,
    summary="modular files depend on each other in a circle",
    explanation="""\
A modular file builds on the generated files of the models that it imports from, so these must be generated
first. In a circle there is no first file.

Break the circle at one place: let one of the files import from a model outside it, or write the class out in full
there.
""",
    examples=(
        (
            FIRST,
            (
                "models/second/modular_second.py",
                """\
from torch import nn

from ..first.modeling_first import FirstAttention


class SecondAttention(FirstAttention):
    pass


class SecondMLP(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


__all__ = ["SecondAttention", "SecondMLP"]
""",
            ),
        ),
        (
            FIRST,
            (
                "models/second/modular_second.py",
                """\
from torch import nn


class SecondAttention(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


class SecondMLP(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


__all__ = ["SecondAttention", "SecondMLP"]
""",
            ),
        ),
    ),
)


def diagnose(location: Location, members: tuple[str, ...]) -> Finding:
    """`members` are the modular files or models of the circle in the order in which each needs the next."""
    return Finding(
        RULE,
        location,
        f"modular files depend on each other in a circle: {' -> '.join((*members, members[0]))}",
        help="Let one of them import from a model outside the circle, or write the class out in full there.",
    )
