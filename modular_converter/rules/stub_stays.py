"""MC317: a stub that removes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, split_lines
from modular_converter.rules._examples import examples, new_mlp, old_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC317",
    name="stub-stays",
    severity=Severity.WARNING,
    summary="a raising stub does not remove the parent's method, but takes its place",
    explanation="""\
An override that only raises (`raise AttributeError("…")`) removes the parent's method, if one blank line stands above
it and it has no docstring. This one is directly below `class`, or another line stands between it and the blank line,
so the generated class has a method that raises.

Put one blank line above the stub, and a docstring or another member between it and `class`.
""",
    examples=examples(
        old_mlp("""\
    def rescale(self, hidden_states):
        return 2 * hidden_states

    def forward(self, hidden_states):
        return hidden_states
"""),
        bad=new_mlp("""\
    def rescale(self, hidden_states):
        raise AttributeError("not needed here")
"""),
        good=new_mlp("""\
    is_scaled = False

    def rescale(self, hidden_states):
        raise AttributeError("not needed here")
"""),
    ),
)


def diagnose(location: Location, method: str, name: str) -> Finding:
    """The stub `method` of class `name` stays in the generated class."""
    return Finding(
        RULE,
        location,
        f"the generated `{name}.{method}` raises: this stub does not remove the parent's method",
        help="Put one blank line above it, and the docstring of the class or another member between it and `class`. The "
        "stub itself may have no docstring.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find overrides that only raise an `AttributeError`, and that the generated class still has."""
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "raise AttributeError" in heir.text else ():
            generated = facts.generated[heir.name]
            if method.is_stub and parent.defines(method.name) and generated.defines(method.name):
                yield diagnose(facts.at(method.name, heir.line + method.node.lineno - 1), method.name, heir.name)


def fix(text: str, finding: Finding) -> Fix | None:
    """Put a blank line above a stub that stands directly below another member."""
    number = finding.location.line
    lines = split_lines(text)
    above = lines[number - 2].strip() if number > 1 else ""
    if not above or above.startswith(("@", "#")) or above.endswith(":"):
        return None
    return Fix("Put a blank line above the stub", (Edit(number, 1, number, 1, "\n"),), changes_generated=True)
