"""MC204: an override that cannot be merged with the parent's code."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import modeling_old, new_mlp


NEIGHBOUR = modeling_old("""\
from torch import nn


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        if hidden_states is None:
            return None
        return 2 * hidden_states
""")

RULE = Rule(
    code="MC204",
    name="override-not-mergeable",
    severity=Severity.ERROR,
    summary="an override cannot be merged with the parent's code without a change of its meaning",
    explanation="""\
The generated class has one body where inheritance has two methods, one of which calls the other. Some overrides cannot
be written as one body: lines behind `super().f()` that the parent's `return` would skip; a parameter that the parent's
lines read and the child does not have; an `async` method of a plain one; a local name that hides a function which the
parent's lines call, or that an inner function shares with the other method; the parent's own name in the child's code.

The message says which of these it is. Write the parent's lines out in the override, and change what you need.
""",
    bad=(
        NEIGHBOUR,
        new_mlp("""\
class NewMLP(OldMLP):
    def forward(self, hidden_states):
        super().forward(hidden_states)
        self.calls += 1
"""),
    ),
    good=(
        NEIGHBOUR,
        new_mlp("""\
class NewMLP(OldMLP):
    def forward(self, hidden_states):
        self.calls += 1
        return super().forward(hidden_states)
"""),
    ),
)


def diagnose(location: Location, override: str, reason: str, help: str) -> Finding:
    """`reason` names the obstacle, `help` the text to write instead."""
    return Finding(RULE, location, f"`{override}` cannot be merged with the parent's: {reason}", help=help)
