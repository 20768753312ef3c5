"""MC338: a definition that was made while a name still had its earlier definition."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, examples, modeling_old


RULE = Rule(
    code="MC338",
    name="name-defined-twice",
    severity=Severity.WARNING,
    summary="a definition reads a name that its file defines again further down, and a generated file has the last one",
    explanation="""\
A class or function that Python makes between two definitions of a name uses the first of them in its bases,
decorators, defaults and class body. A generated file has one definition for each name, the last.

Give the two different names. If they are a neighbour's, write the definition that uses the first one out.
""",
    examples=examples(
        modeling_old("""\
from torch import nn


SIZE = 1


class OldMLP(nn.Module):
    def forward(self, hidden_states, size=SIZE):
        return size * hidden_states


SIZE = 2
"""),
        bad=NEW_MLP,
        good="""\
from torch import nn


class NewMLP(nn.Module):
    def forward(self, hidden_states, size=1):
        return size * hidden_states


__all__ = ["NewMLP"]
""",
    ),
    formerly="MC320",
)


def redefined(location: Location, user: str, name: str, file: str, first: int, last: int) -> Finding:
    """A file defines `name` on two lines, and `user`, which is created between them, uses the first definition."""
    return Finding(
        RULE,
        location,
        f"the generated `{user}` would use `{name}` of {file}:{last}, not of {file}:{first} as written",
        help=f"Give the two different names, or write `{user}` out in the modular file.",
    )
