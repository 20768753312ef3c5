"""MC503: bases for which Python finds no order."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples


RULE = Rule(
    code="MC503",
    name="inconsistent-bases",
    severity=Severity.ERROR,
    summary="the bases of a generated class have no order",
    explanation="""\
Python lays the bases of a class out in one order in which every class stands before its own bases. Here there is
none, so the generated file would raise a `TypeError` when it is imported: a base is named before a class that inherits
from it, or twice.

Write the more special class first, as in `class NewMLP(NewMixin, OldMLP)`.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from torch import nn

from ..old.modeling_old import OldMLP


class NewMixin(nn.Module):
    pass


class NewMLP(nn.Module, NewMixin):
    pass


class NewHead(OldMLP):
    pass


__all__ = ["NewMLP", "NewHead"]
""",
        good="""\
from torch import nn

from ..old.modeling_old import OldMLP


class NewMixin(nn.Module):
    pass


class NewMLP(NewMixin, nn.Module):
    pass


class NewHead(OldMLP):
    pass


__all__ = ["NewMLP", "NewHead"]
""",
    ),
)


def diagnose(location: Location, name: str, bases: str) -> Finding:
    """`bases` are those of the generated class `name`, as they stand there."""
    return Finding(
        RULE,
        location,
        f"Python finds no order for the bases of the generated `{name}({bases})`",
        help="Name each base once, a class before those that it inherits from.",
    )
