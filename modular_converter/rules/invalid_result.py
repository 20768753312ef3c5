"""MC501: generated code that does not compile."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


NEIGHBOUR = (
    "models/old/modeling_old.py",
    """\
from torch import nn


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return self.scale(hidden_states)

    def scale(self, hidden_states):
        return hidden_states
""",
)

RULE = Rule(
    code="MC501",
    name="invalid-result",
    severity=Severity.ERROR,
    summary="the generated code is not valid Python",
    explanation="""\
The text that the converter put together does not compile, so nothing is written. Its parts come from two files: an
asynchronous method of the parent, for example, cannot be inlined into a plain method. The finding points at the class
of the modular file from which the text comes.

Write the method out without `super()`, or change its signature so that both parts go together.
""",
    bad=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def scale(self, hidden_states):
        nonlocal hidden_states
        return hidden_states


__all__ = ["NewMLP"]
""",
        ),
    ),
    good=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def scale(self, hidden_states):
        return hidden_states * self.factor


__all__ = ["NewMLP"]
""",
        ),
    ),
)


def diagnose(location: Location, reason: str, place: str) -> Diagnostic:
    """`reason` is Python's own; `place` names the definition and the line of the generated file."""
    return Diagnostic(
        RULE,
        location,
        f"the generated code is not valid Python: {reason}, in {place}",
        help="Write out the method that is merged there. `--formatter none --diff` shows the text.",
    )
