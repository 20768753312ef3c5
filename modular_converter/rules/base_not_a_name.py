"""MC109: a base class that is an expression."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC109",
    name="base-not-a-name",
    severity=Severity.ERROR,
    summary="a base of a class is not a plain or dotted name",
    explanation="""\
Bases decide which source a class is built from, so each must be readable without running code: a name (`OldMLP`)
or a dotted name (`nn.Module`). A call, a subscript or a condition has a value only at run time.

Give the class by its name. If the expression chooses between classes, write one class for each.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


class NewMLP(type(OldMLP())):
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, name: str, base: str) -> Finding:
    """`base` is the expression as written."""
    return Finding(
        RULE,
        location,
        f"the base `{base}` of class `{name}` is not a name",
        help="Write the base as a name or a dotted name, such as `OldMLP` or `nn.Module`.",
    )
