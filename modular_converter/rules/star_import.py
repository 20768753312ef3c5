"""MC119: a star import of a neighbour."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC119",
    name="star-import",
    severity=Severity.ERROR,
    summary="everything is imported from a neighbour",
    explanation="""\
The names that a modular file imports from another model decide which parents are merged and which functions are
copied. `from ..old.modeling_old import *` names none of them, so `OldMLP` would be unknown in the generated file.

Name what you use: `from ..old.modeling_old import OldMLP`.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import *


class NewMLP(OldMLP):
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, neighbour: str) -> Finding:
    """`neighbour` is the module as the modular file writes it."""
    return Finding(
        RULE,
        location,
        f"`*` is imported from {neighbour}",
        help=f"Name the classes and functions that you use: `from {neighbour} import …`.",
    )
