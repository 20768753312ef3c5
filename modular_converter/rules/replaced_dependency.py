"""MC201: a changed class that the generated model would not use."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


NEIGHBOUR = (
    "models/old/modeling_old.py",
    """\
from torch import nn


class OldEmbeddings(nn.Module):
    def forward(self, input_ids):
        return input_ids


class OldModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = OldEmbeddings()

    def forward(self, input_ids):
        return self.embeddings(input_ids)
""",
)

RULE = Rule(
    code="MC201",
    name="replaced-dependency",
    severity=Severity.ERROR,
    summary="a class derived from a dependency is not used by the model that inherits the dependency",
    explanation="""\
`NewModel(OldModel)` brings along what `OldModel` uses, renamed: its `OldEmbeddings` becomes `NewEmbeddings`. A class
of yours derived from `OldEmbeddings` under any other name is a second class: the generated model goes on with an
untouched `NewEmbeddings` copy and never sees your change.

Either give your class the name that the copy would have (`NewEmbeddings`), and it takes the copy's place everywhere,
or assign it in the `__init__` of the model: `self.embeddings = NewRotaryTable()`.
""",
    bad=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldEmbeddings, OldModel


class NewRotaryTable(OldEmbeddings):
    def forward(self, input_ids):
        return 2 * input_ids


class NewModel(OldModel):
    pass


__all__ = ["NewModel"]
""",
        ),
    ),
    good=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldEmbeddings, OldModel


class NewRotaryTable(OldEmbeddings):
    def forward(self, input_ids):
        return 2 * input_ids


class NewModel(OldModel):
    def __init__(self, config):
        super().__init__(config)
        self.embeddings = NewRotaryTable()


__all__ = ["NewModel"]
""",
        ),
    ),
)


def diagnose(
    location: Location, name: str, copy: str, user: str, *, severity: Severity = Severity.ERROR
) -> Diagnostic:
    """Class `name` changes what arrives as `copy`, but the generated class `user` goes on using `copy`."""
    return Diagnostic(
        RULE,
        location,
        f"`{name}` changes `{copy}`, but the generated `{user}` goes on using an untouched `{copy}`",
        help=f"Assign `{name}` in `{user}.__init__`, or name it `{copy}`, so that it takes the place of the copy.",
        severity_override=None if severity is RULE.severity else severity,
    )
