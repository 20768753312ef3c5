"""MC328: a word of inherited code that renaming changes, and that other code than the model's reads."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, examples, modeling_old


RULE = Rule(
    code="MC328",
    name="renamed-for-others",
    severity=Severity.WARNING,
    summary="renaming changes a word that other code than the model's reads",
    explanation="""\
Inherited code is renamed by its text, strings included. A string that a function of another library gets, bytes, and a
method of an object that need not be the model's may mean something else than the model: in a child of `dia`,
`mode="dia"` would become `mode="new"`, and where the model sets `self.clip`, `x.clip(0, 1)` is renamed with it.

If the word means the model, silence this finding. Else override what uses it, or write `torch.clip(x)`: attributes of
what the neighbour imports are not renamed.
""",
    examples=examples(
        modeling_old("""\
import torch
from torch import nn


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        return torch.nn.functional.interpolate(hidden_states, mode="old")
"""),
        bad=NEW_MLP,
        good="""\
import torch

from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def forward(self, hidden_states):
        return torch.nn.functional.interpolate(hidden_states, mode="old")


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, old: str, new: str, where: str, definition: str) -> Finding:
    """`where` is the code of the neighbour in which the word `old` becomes `new`."""
    return Finding(
        RULE,
        location,
        f"in the generated `{definition}`, `{old}` in `{where}` becomes `{new}`, though it may not mean the model",
        help="If it does not mean the model, override what uses it; else silence this finding.",
    )
