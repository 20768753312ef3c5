"""MC322: a statement behind `super()` that the parent's lines have word for word."""

from __future__ import annotations

from modular_converter.findings import Finding, Fix, Location, Rule, Severity
from modular_converter.rules._edits import remove_statement
from modular_converter.rules._examples import examples, old_mlp


RULE = Rule(
    code="MC322",
    name="statement-not-repeated",
    severity=Severity.WARNING,
    summary="a statement behind `super()` is in the parent's lines too, and is not repeated",
    explanation="""\
A statement that the parent's lines contain word for word is not repeated behind them. For most assignments that makes
no difference. A statement that appends, counts or calls something would run twice with inheritance, and runs once.

Leave it out if once is enough. If you mean it twice, write it in another way.
""",
    examples=examples(
        old_mlp("""\
    def __init__(self, config):
        super().__init__()
        self.layers = nn.ModuleList()
        self.layers.append(nn.Linear(8, 8))
"""),
        bad="""\
from torch import nn

from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.layers.append(nn.Linear(8, 8))


__all__ = ["NewMLP"]
""",
        good="""\
from torch import nn

from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.layers.extend([nn.Linear(8, 8)])


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, statement: str) -> Finding:
    """`statement` is the text of the statement."""
    first, rest = statement.partition("\n")[::2]
    return Finding(
        RULE,
        location,
        f"`{first}{'…' if rest else ''}` is among the parent's lines, and is not repeated",
        help="Leave it out, or write it in another way if it is to run twice.",
    )


def fix(text: str, finding: Finding) -> Fix | None:
    """Leave the statement out: the generated file has it once already."""
    return remove_statement(text, finding, "Remove the statement")
