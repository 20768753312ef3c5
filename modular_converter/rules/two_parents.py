"""MC108: a class with parents in two neighbours."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples, new_mlp


RULE = Rule(
    code="MC108",
    name="two-parents",
    severity=Severity.ERROR,
    summary="a class inherits from two classes of neighbours",
    explanation="""\
A generated class is the body of one parent with the child's changes. Two neighbour parents give two bodies, and a
reader could not tell which of two methods of one name counts.

Inherit from the class that gives most, and write the methods that you want from the other into the child, or a call
such as `super().forward(…)` beside your own lines. Ordinary bases that come from no neighbour (`nn.Module`, mixins of
the library) may be added freely.
""",
    examples=examples(
        OLD_MLP,
        (
            "models/other/modeling_other.py",
            """\
class OtherMixin:
    def scale(self, hidden_states):
        return 2 * hidden_states
""",
        ),
        bad="""\
from ..old.modeling_old import OldMLP
from ..other.modeling_other import OtherMixin


class NewMLP(OldMLP, OtherMixin):
    pass


__all__ = ["NewMLP"]
""",
        good=new_mlp("""\
    def scale(self, hidden_states):
        return 2 * hidden_states
"""),
    ),
)


def diagnose(location: Location, name: str, parents: tuple[str, ...]) -> Finding:
    """`parents` are the bases of class `name` that come from neighbours."""
    listed = ", ".join(f"`{parent}`" for parent in parents)
    return Finding(
        RULE,
        location,
        f"class `{name}` inherits from more than one neighbour class: {listed}",
        help=f"Keep one of them as the parent and write what you need of the others into `{name}`.",
    )
