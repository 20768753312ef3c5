"""MC308: a function or assignment that no class uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC308",
    name="unused-definition",
    severity=Severity.WARNING,
    summary="a function or assignment is used by no class, so it is not generated",
    explanation="""\
A generated file holds classes, and the functions and assignments that these classes use. No class of this modular file
uses this definition, neither directly nor through another definition, so no generated file has it.

Use the definition or remove it. If it is meant to replace a function of another model, it must have the name that this
function has after renaming (`new_helper` for `old_helper`).
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


def double(hidden_states):
    return 2 * hidden_states


class NewMLP(OldMLP):
    pass


__all__ = ["NewMLP"]
""",
        good="""\
from ..old.modeling_old import OldMLP


def double(hidden_states):
    return 2 * hidden_states


class NewMLP(OldMLP):
    def forward(self, hidden_states):
        return double(hidden_states)


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, name: str) -> Finding:
    """`name` is the function or variable."""
    return Finding(
        RULE,
        location,
        f"no class uses `{name}`, so it is in no generated file",
        help=f"Use `{name}` in a class, or remove it.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find functions and assignments that no generated file holds."""
    bases = {parent.written for _, parent in facts.heirs}
    for name, definition in facts.definitions.items():
        ignored = (
            definition.is_class or name in facts.customary_names or name in bases or name in ("__all__", "__getattr__")
        )
        if not ignored and name not in facts.generated:
            yield diagnose(facts.at(name, definition.line), name)
