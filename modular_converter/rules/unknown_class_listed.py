"""MC332: a list of classes that names a class which the model does not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean
from modular_converter.rules._examples import examples, modeling_old


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC332",
    name="unknown-class-listed",
    severity=Severity.WARNING,
    summary="a list of classes names a class that the model does not have",
    explanation="""\
`_no_split_modules` (and whatever else the setting `class-lists` names) lists classes of the model by their names. The
name of this entry begins with that of the model, and no generated file has such a class, so the entry means nothing:
the class is misspelt, or was renamed.

Correct the entry.
""",
    examples=examples(
        modeling_old("""\
from torch import nn


class OldLayer(nn.Module):
    def forward(self, hidden_states):
        return hidden_states


class OldPreTrainedModel(nn.Module):
    _no_split_modules = ["OldLayer"]
"""),
        bad="""\
from ..old.modeling_old import OldLayer, OldPreTrainedModel


class NewLayer(OldLayer):
    pass


class NewPreTrainedModel(OldPreTrainedModel):
    _no_split_modules = ["NewLayr"]
""",
        good="""\
from ..old.modeling_old import OldLayer, OldPreTrainedModel


class NewLayer(OldLayer):
    pass


class NewPreTrainedModel(OldPreTrainedModel):
    _no_split_modules = ["NewLayer"]
""",
    ),
)


def diagnose(location: Location, entry: str, attribute: str, *, candidates: tuple[str, ...] = ()) -> Finding:
    """`entry` of the list `attribute` names no class; `candidates` are the classes of the model."""
    return Finding(
        RULE,
        location,
        f"`{entry}` in `{attribute}` is no class of the generated files",
        help=did_you_mean(entry, candidates) + "Name a class of the model, or drop the entry.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find entries, in lists that the modular file writes, that are named as classes of the model and are none."""
    for one in facts.classes.values():
        for attribute in (name for name in facts.class_lists if name in one.text):
            for node, entry in _entries(one.members.node, attribute):
                if entry.startswith(facts.cased) and entry not in facts.generated:
                    yield diagnose(facts.at_node(one, node), entry, attribute, candidates=tuple(facts.generated))


def _entries(node: ast.ClassDef, attribute: str) -> Iterator[tuple[ast.Constant, str]]:
    """The texts in the list or set that a class assigns to an attribute."""
    for statement in node.body:
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(getattr(target, "id", "") == attribute for target in targets):
            for entry in getattr(getattr(statement, "value", None), "elts", ()):
                if isinstance(entry, ast.Constant) and isinstance(entry.value, str):
                    yield entry, entry.value
