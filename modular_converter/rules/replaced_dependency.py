"""MC201: a changed class that the generated model does not use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, modeling_old


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, GeneratedDefinition, Parent


RULE = Rule(
    code="MC201",
    name="replaced-dependency",
    severity=Severity.ERROR,
    summary="a class derived from a dependency is not used by the model that inherits the dependency",
    explanation="""\
`NewModel(OldModel)` copies the classes that `OldModel` uses, under new names: `OldEmbeddings` becomes `NewEmbeddings`.
If you derive a class with another name from `OldEmbeddings`, it is a second class: the generated model uses the
unchanged copy `NewEmbeddings`, and your change has no effect.

Either give your class the name of the copy (`NewEmbeddings`), so that it replaces the copy everywhere, or assign your
class in the `__init__` of the model: `self.embeddings = NewRotaryTable()`.
""",
    examples=examples(
        modeling_old("""\
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
"""),
        bad="""\
from ..old.modeling_old import OldEmbeddings, OldModel


class NewRotaryTable(OldEmbeddings):
    def forward(self, input_ids):
        return 2 * input_ids


class NewModel(OldModel):
    pass


__all__ = ["NewModel"]
""",
        good="""\
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
)


def diagnose(location: Location, name: str, copy: str, user: str, *, severity: Severity = Severity.ERROR) -> Finding:
    """Class `name` changes the class that is copied as `copy`, but the generated class `user` still uses `copy`."""
    return Finding(
        RULE,
        location,
        f"`{name}` changes `{copy}`, but the generated `{user}` goes on using an untouched `{copy}`",
        help=f"Assign `{name}` in `{user}.__init__`, or name it `{copy}`, so that it takes the place of the copy.",
        severity_override=None if severity is RULE.severity else severity,
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find classes whose parent is also copied unchanged, and used by another generated class."""
    for definitions in facts.files.values():
        for name in definitions:
            heir = facts.classes.get(name)
            if heir is None or heir.parent is None or heir.name == heir.parent.name:
                continue
            user = _user_of_copy(facts, definitions, heir, heir.parent)
            if user is None or _is_used(facts, name) or heir.members.is_empty:
                continue
            severity = Severity.WARNING if name in facts.exported else facts.replaced_dependency
            yield diagnose(facts.at_class(heir), name, heir.parent.name, user, severity=severity)


def _user_of_copy(
    facts: Facts, definitions: Mapping[str, GeneratedDefinition], heir: ClassFacts, parent: Parent
) -> str | None:
    """The first other class of the modular file whose generated form uses a copy of the parent."""
    copy = definitions.get(parent.name)
    if copy is None or copy.copied_from != parent.neighbour.path:
        return None
    others = (other.name for other, _ in facts.heirs if other.name != heir.name)
    return next((name for name in others if name in definitions and copy.name in definitions[name].uses), None)


def _is_used(facts: Facts, name: str) -> bool:
    """Whether another definition uses a class: then the author wants both, the changed class and the copy."""
    return any(name in one.uses for one in facts.generated.values() if one.name != name)
