"""MC325: a definition that is written out though a neighbour has it. Off by default."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC325",
    name="inheritable-definition",
    severity=Severity.WARNING,
    summary="a definition is written out though a neighbour has it",
    explanation="""\
Another model has a class or function with the same text, but for the names of the models. A correction of
one of the two has to be repeated in the other, and a reader cannot see that they are the same.

Inherit the class (`class NewMLP(OldMLP): pass`) or import the function. Where several models have the text, the oldest
is named. What the definition uses must be the same, too: `modular-convert modularize MODEL --diff` proves the change.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from torch import nn


class NewMLP(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
    by_default=False,
)


def diagnose(location: Location, name: str, original: str, dotted: str, *, is_class: bool) -> Finding:
    """`name` is written out, and the neighbour `dotted` defines the same under the name `original`."""
    use = f" and `class {name}({original}): pass`" if is_class else ""
    return Finding(
        RULE,
        location,
        f"`{name}` is written out, and `{original}` of {dotted} is the same",
        help=f"Write `from {dotted} import {original}`{use} in place of the definition.",
    )
