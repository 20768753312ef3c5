"""MC307: a prefix that would give two classes one name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._cures import name_heirs
from modular_converter.rules._examples import NEW_MLP, examples, modeling_old


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC307",
    name="colliding-prefix",
    severity=Severity.WARNING,
    summary="the prefix of a class is already taken in the neighbour",
    explanation="""\
The classes and functions that a parent needs are copied from its file under new names. Your class name decides the
prefix of the new names: `NewTextMLP(OldMLP)` asks for `NewText…`. But the parent's file has an `OldTextMLP` beside its
`OldMLP`, and with this prefix both would become `NewTextMLP`. The copies get the model's own name (`New…`) instead.

Choose a prefix that the other file does not use, usually the model's own name (`NewMLP`), or inherit from the class
with the matching name (`OldTextMLP`).
""",
    examples=examples(
        modeling_old("""\
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


class OldTextMLP(nn.Module):
    def forward(self, hidden_states):
        return 2 * hidden_states
"""),
        bad="""\
from ..old.modeling_old import OldMLP


class NewTextMLP(OldMLP):
    pass


__all__ = ["NewTextMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, neighbour: str, prefix: str, taken: str, chosen: str, cure: str) -> Finding:
    """`taken` is the class of `neighbour` that `prefix` collides with, `chosen` the prefix that is used instead. `cure`
    gives names for the classes.
    """
    return Finding(
        RULE,
        location,
        f"the prefix `{prefix}` collides with `{taken}` of {neighbour}; `{chosen}` is used instead",
        help=cure,
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find neighbours whose copies get another prefix than the classes ask for."""
    for neighbour in facts.neighbours:
        heir = facts.renamed_heir(neighbour) if neighbour.collides_with and facts.names_unseen(neighbour) else None
        if heir is not None:
            others = [prefix for prefix in neighbour.asked if prefix != neighbour.prefix]
            # The prefix adds to the model's own name a word that the colliding class has in its name.
            added = (prefix for prefix in others if prefix[len(neighbour.prefix) :] in neighbour.collides_with)
            wanted = next(added, others[0])
            place, taken, chosen = facts.at_class(heir), neighbour.collides_with, neighbour.prefix
            yield diagnose(place, neighbour.dotted, wanted, taken, chosen, name_heirs(*facts.naming(neighbour)))
