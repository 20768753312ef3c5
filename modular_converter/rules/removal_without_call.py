"""MC330: the exception class where an exception would remove an attribute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, split_lines
from modular_converter.rules._edits import at, subject
from modular_converter.rules._examples import examples, modeling_old, new_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC330",
    name="removal-without-call",
    severity=Severity.WARNING,
    summary="`x = AttributeError` lacks the parentheses with which it removes `x`",
    explanation="""\
`x = AttributeError()` in a class body takes the attribute `x` of the parent out of the generated class. Without the
parentheses, the attribute stays, and its value is the exception class.

Write `AttributeError()`.
""",
    examples=examples(
        modeling_old("""\
class OldMLP:
    scale = 2
"""),
        bad=new_mlp("""\
    scale = AttributeError
"""),
        good=new_mlp("""\
    scale = AttributeError()
"""),
    ),
)


def diagnose(location: Location, attribute: str) -> Finding:
    """`attribute` is assigned the class `AttributeError`."""
    return Finding(
        RULE,
        location,
        f"`{attribute} = AttributeError` does not remove `{attribute}`: its value is the exception class",
        help=f"Write `{attribute} = AttributeError()`.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find attributes of heirs that are assigned the class `AttributeError`."""
    for heir, _ in facts.heirs:
        for target in heir.members.named_exceptions if "= AttributeError" in heir.text else ():
            yield diagnose(facts.at_node(heir, target), target.id)


def fix(text: str, finding: Finding) -> Fix | None:
    """Write the parentheses."""
    line = split_lines(text)[finding.location.line - 1]
    column = line.find("AttributeError", finding.location.column) + len("AttributeError")
    place = at(text, finding.location.line, len(line[:column].encode()))
    edit = Edit(*place, *place, "()")
    return Fix(f"Remove `{subject(finding).split()[0]}`", (edit,), changes_generated=True)
