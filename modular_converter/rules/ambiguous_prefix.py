"""MC306: classes that ask for different names for one neighbour."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


if TYPE_CHECKING:
    from modular_converter.facts.conversion import Facts


NEIGHBOUR = (
    "models/old/modeling_old.py",
    """\
from torch import nn


class OldNorm(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


class OldMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = OldNorm()

    def forward(self, hidden_states):
        return self.norm(hidden_states)


class OldAttention(nn.Module):
    def forward(self, hidden_states):
        return hidden_states
""",
)

RULE = Rule(
    code="MC306",
    name="ambiguous-prefix",
    severity=Severity.WARNING,
    summary="classes derived from one neighbour begin with different names",
    explanation="""\
`class NewTextMLP(OldMLP)` says that what comes from `old` is called `NewText…`, also the classes and functions that
are pulled in unseen. Here the classes disagree, and one name must serve for all: the one used most, on a tie the
model's own if it is among them, else the last.

Let all classes that inherit from one neighbour begin alike. Where two parts of a model need different names, take the
second part from another neighbour, or from a class of this file.
""",
    bad=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldAttention, OldMLP


class NewTextMLP(OldMLP):
    pass


class NewVisionAttention(OldAttention):
    pass


__all__ = ["NewTextMLP", "NewVisionAttention"]
""",
        ),
    ),
    good=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldAttention, OldMLP


class NewTextMLP(OldMLP):
    pass


class NewTextAttention(OldAttention):
    pass


__all__ = ["NewTextMLP", "NewTextAttention"]
""",
        ),
    ),
)


def diagnose(location: Location, neighbour: str, prefixes: tuple[str, ...], chosen: str) -> Diagnostic:
    """`prefixes` are those asked for, `chosen` the one that everything from `neighbour` is renamed to."""
    listed = ", ".join(f"`{prefix}`" for prefix in prefixes)
    return Diagnostic(
        RULE,
        location,
        f"what comes from {neighbour} could be called {listed}; `{chosen}` is used for all of it",
        help=f"Let all classes that inherit from {neighbour} begin alike.",
    )


def check(facts: Facts) -> Iterator[Diagnostic]:
    """Find neighbours of which something arrives under a name that the classes do not agree on."""
    for neighbour in facts.neighbours:
        is_ambiguous = len(neighbour.asked) > 1 and not neighbour.collides_with
        heir = facts.renamed_heir(neighbour) if is_ambiguous and facts.names_unseen(neighbour) else None
        if heir is not None:
            yield diagnose(facts.at_class(heir), neighbour.dotted, neighbour.asked, neighbour.prefix)
