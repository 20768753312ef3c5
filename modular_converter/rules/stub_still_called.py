"""MC305: a removed method that is still called."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


NEIGHBOUR = (
    "models/old/modeling_old.py",
    """\
from torch import nn


class OldMLP(nn.Module):
    def rescale(self, hidden_states):
        return 2 * hidden_states

    def forward(self, hidden_states):
        return self.rescale(hidden_states)
""",
)

RULE = Rule(
    code="MC305",
    name="stub-still-called",
    severity=Severity.WARNING,
    summary="a raising stub removes a method that the generated file still calls",
    explanation="""\
An override that only raises (`raise AttributeError("…")`), behind a blank line, removes the parent's method from the
generated class. The generated file still calls it, so the call would fail, or reach a method of that name in a base
class.

Override the caller as well, or keep the method.
""",
    bad=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    is_scaled = False

    def rescale(self, hidden_states):
        raise AttributeError("not needed here")


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
    is_scaled = False

    def rescale(self, hidden_states):
        raise AttributeError("not needed here")

    def forward(self, hidden_states):
        return hidden_states


__all__ = ["NewMLP"]
""",
        ),
    ),
)


def diagnose(location: Location, method: str, name: str, callers: tuple[str, ...]) -> Diagnostic:
    """`callers` are the methods (`Class.method`) of the generated file that still call `method` of class `name`."""
    listed = ", ".join(f"`{caller}`" for caller in callers)
    return Diagnostic(
        RULE,
        location,
        f"`{name}.{method}` is removed by a raising stub, but {listed} still calls it",
        help=f"Override {listed} without the call, or keep `{method}`.",
    )
