"""MC502: a name that is imported for type checkers, in an annotation that Python evaluates."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples


RULE = Rule(
    code="MC502",
    name="typing-only-name",
    severity=Severity.ERROR,
    summary="generated code reads a name that only type checkers import",
    explanation="""\
Python up to 3.13 evaluates the annotations of a signature when the file is imported, and an import under
`if TYPE_CHECKING:` has not run then: a `NameError`.

Write `from __future__ import annotations` at the top of the modular file: it is carried into the generated files whose
annotations need it. Or write the annotation in quotes, or import the name outside of `if TYPE_CHECKING:`.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from typing import TYPE_CHECKING

from ..old.modeling_old import OldMLP


if TYPE_CHECKING:
    from collections.abc import Sequence


class NewMLP(OldMLP):
    def forward(self, hidden_states: Sequence):
        return hidden_states[0]


__all__ = ["NewMLP"]
""",
        good="""\
from __future__ import annotations

from typing import TYPE_CHECKING

from ..old.modeling_old import OldMLP


if TYPE_CHECKING:
    from collections.abc import Sequence


class NewMLP(OldMLP):
    def forward(self, hidden_states: Sequence):
        return hidden_states[0]


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, name: str, place: str) -> Finding:
    """`place` names the definition and the line of the generated file."""
    return Finding(
        RULE,
        location,
        f"{place} reads `{name}` when it is imported, but only type checkers import `{name}`",
        help=f'Write `from __future__ import annotations` at the top, or the annotation as "{name}", in quotes.',
    )
