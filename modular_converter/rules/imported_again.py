"""MC205: a name that is imported below another meaning of it."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples


RULE = Rule(
    code="MC205",
    name="imported-again",
    severity=Severity.ERROR,
    summary="a name is imported below its own definition, or from two places",
    explanation="""\
The imports of a generated file stand on top, and its definitions below them. In Python the last statement decides what
a name means: where a file defines `scale` and imports `scale` further down, its code calls the imported function, and
the generated code the defined one. `fast = None` above a protected import of `fast` is such a pair. Of two imports of
one name from two places the generated file has the first.

Import a name once, and above its definition if it has one. Alternatives belong into one `try` or `if`.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


def scale(hidden_states, factor):
    return hidden_states * factor


from torch import mul as scale


class NewMLP(OldMLP):
    def scaled(self, hidden_states):
        return scale(hidden_states, 2.0)


__all__ = ["NewMLP"]
""",
        good="""\
from torch import mul as scale

from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def scaled(self, hidden_states):
        return scale(hidden_states, 2.0)


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, name: str, file: str, used: int, kind: str, imported: int) -> Finding:
    """`file` imports `name` at one line, below the line with the definition or import (`kind`) that would be used."""
    return Finding(
        RULE,
        location,
        f"{file} imports `{name}` in line {imported}, but the generated code would use the {kind} in line {used}",
        help=f"Remove one of the two, or give one a name other than `{name}`. Put alternatives into one `try` or `if`.",
    )
