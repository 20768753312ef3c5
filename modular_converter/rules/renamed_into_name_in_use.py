"""MC337: a name that renaming makes equal to another one of the same code."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, examples, old_mlp


RULE = Rule(
    code="MC337",
    name="renamed-into-name-in-use",
    severity=Severity.WARNING,
    summary="renaming makes one name of two that the neighbour's code keeps apart",
    explanation="""\
The neighbour's name gives way to that of your model wherever it occurs in its code. If that code has a name with your
model's name in it already, the two become one: `old_scale` beside `new_scale`, as parameters, attributes or local
names.

Write the code that uses the two out in the modular file, with other names.
""",
    examples=examples(
        old_mlp("""\
    def forward(self, hidden_states):
        new_states = 2 * hidden_states
        old_states = hidden_states + 1
        return old_states + new_states
"""),
        bad=NEW_MLP,
        good="""\
from torch import nn


class NewMLP(nn.Module):
    def forward(self, hidden_states):
        new_states = 2 * hidden_states
        earlier_states = hidden_states + 1
        return earlier_states + new_states


__all__ = ["NewMLP"]
""",
    ),
    formerly="MC320",
)


def renamed_into(location: Location, user: str, old: str, new: str, module: str) -> Finding:
    """Renaming makes `old` of the neighbour `module` the same name as `new`, which its code has beside it."""
    return Finding(
        RULE,
        location,
        f"`{old}` of `{module}` is renamed to `{new}`, which its code has already: the two are one in `{user}`",
        help=f"Write the code that uses the two out in the modular file, with other names than `{new}`.",
    )
