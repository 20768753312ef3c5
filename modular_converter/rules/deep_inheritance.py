"""MC312: a parent that is itself built on another model's class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, examples, modeling_old


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC312",
    name="deep-inheritance",
    severity=Severity.WARNING,
    summary="the parent itself inherits from another model's class",
    explanation="""\
The generated class has the parent's body and the parent's bases. One of these bases is a class of a third model, so
the generated file imports from that model, and a reader does not see all code of the class in one file.

Inherit from the class that holds the code (`FirstMLP`), or first rewrite the parent's file so that it does not import
from another model.
""",
    examples=examples(
        (
            "models/first/modeling_first.py",
            """\
from torch import nn


class FirstMLP(nn.Module):
    def forward(self, hidden_states):
        return hidden_states
""",
        ),
        modeling_old("""\
from ..first.modeling_first import FirstMLP


class OldMLP(FirstMLP):
    def rescale(self, hidden_states):
        return 2 * hidden_states
"""),
        bad=NEW_MLP,
        good="""\
from ..first.modeling_first import FirstMLP


class NewMLP(FirstMLP):
    def rescale(self, hidden_states):
        return 2 * hidden_states


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, name: str, parent: str, grandparent: str, module: str) -> Finding:
    """Class `name` inherits from `parent`, which inherits from `grandparent` of the model file `module`."""
    return Finding(
        RULE,
        location,
        f"the parent `{parent}` of `{name}` itself inherits from `{grandparent}` of {module}",
        help=f"Inherit from `{grandparent}` and add what `{parent}` changes, so that the generated file stands alone.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find classes whose parents import a base from a third model."""
    for heir, parent in facts.heirs:
        for base in parent.grandparents:
            place = facts.at(parent.written, heir.line)
            yield diagnose(place, heir.name, parent.original, base.name, base.module)
