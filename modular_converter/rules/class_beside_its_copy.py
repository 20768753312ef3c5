"""MC336: a class of a neighbour in use beside its copy, or asked for where only its heir is made."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, modeling_old


RULE = Rule(
    code="MC336",
    name="class-beside-its-copy",
    severity=Severity.WARNING,
    summary="a generated file uses a neighbour's class and a copy or an heir of it, which are two classes",
    explanation="""\
If your code uses a neighbour's class under its own name, and inherited code uses a copy of it, the generated file has
two classes: a member of one enumeration is no member of the other, and an instance of one is none of the other. The
same holds for `isinstance(x, OldMLP)` and `except OldError` where the generated heir of that class is meant: it does
not inherit from it.

Inherit from a class that is copied, and use the heir; or ask for the heir.
""",
    examples=examples(
        modeling_old("""\
import enum

from torch import nn


class OldMode(enum.Enum):
    FAST = 1


class OldMLP(nn.Module):
    def forward(self, hidden_states, mode=OldMode.FAST):
        return hidden_states if mode is OldMode.FAST else 2 * hidden_states
"""),
        bad="""\
from ..old.modeling_old import OldMLP, OldMode


class NewMLP(OldMLP):
    def mode(self):
        return OldMode.FAST


__all__ = ["NewMLP"]
""",
        good="""\
from ..old.modeling_old import OldMLP, OldMode


class NewMode(OldMode):
    pass


class NewMLP(OldMLP):
    def mode(self):
        return NewMode.FAST


__all__ = ["NewMLP"]
""",
    ),
    formerly="MC320",
)


def copied(location: Location, user: str, name: str, copy: str, module: str) -> Finding:
    """`user` uses the class `name` of the neighbour `module`, of which inherited code has the copy `copy`."""
    return Finding(
        RULE,
        location,
        f"the generated `{user}` would use `{name}` of `{module}`, and inherited code its copy `{copy}`: two classes",
        help=f"Write `class {copy}({name})` with `pass` in the modular file, and `{copy}` where you use it.",
    )


def parent_lost(location: Location, user: str, parent: str, heir: str, module: str) -> Finding:
    """`user` asks for instances of `parent`, of which the generated `heir` is none."""
    return Finding(
        RULE,
        location,
        f"the generated `{user}` would ask for `{parent}` of `{module}`, from which the generated `{heir}` does not inherit",
        help=f"Ask for `{heir}`, or for both.",
    )
