"""MC207: bases whose methods the generated class finds in another order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.class_blocks import parse_class
from modular_converter.model.nodes import super_attribute, walk
from modular_converter.rules._examples import OLD_MLP, examples
from modular_converter.rules._merging import not_mergeable


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses


RULE = Rule(
    code="MC207",
    name="base-order",
    severity=Severity.ERROR,
    summary="the generated class would find a method in another class than with inheritance",
    explanation="""\
With inheritance, Python looks for a method in the bases in their order, each with its own bases. The generated class
holds the parent's members itself, so they come first: before those of a base that your class names in front of the
parent. It is generated without those that such a base gives in their place; but where the base calls on with
`super()`, where the parent's lines use the member, or where the base cannot be read, one class cannot say it. And a
class of the modular file takes the place of the parent's base whose name ends like its own, even if it does not
inherit from it.

Name such a base behind the parent, define the method in your class, or let the replacing class inherit from the
replaced one.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


class NewScale:
    def forward(self, hidden_states):
        return 2 * super().forward(hidden_states)


class NewMLP(NewScale, OldMLP):
    pass


__all__ = ["NewMLP"]
""",
        good="""\
from ..old.modeling_old import OldMLP


class NewScale:
    def forward(self, hidden_states):
        return 2 * hidden_states


class NewMLP(NewScale, OldMLP):
    pass


__all__ = ["NewMLP"]
""",
    ),
    formerly="MC204",
)


def diagnose(location: Location, override: str, reason: str, help: str | None = None) -> Finding:
    """See `not_mergeable`."""
    return not_mergeable(RULE, location, override, reason, help)


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find methods that another class would give than with inheritance."""
    yield from _hidden_by_parent(classes)
    yield from _lost_bases(classes)


def _hidden_by_parent(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Methods of a base that comes before the parent: in the generated class, the parent's hide them. Members that the base
    simply gives in their place are no longer among the parent's here (`TwoClasses.given_in_front`).

    A base that takes the place of one of the parent's bases may repeat attributes, as in the corpus (exaone4_5).
    """
    child, parent, bases = classes.child, classes.parent, classes.child.bases
    before = bases[: bases.index(classes.base)]
    for base in before:
        replaces = base in parent.bases or classes.replaced[base] != ""
        texts = classes.in_front.get(base) or tuple(filter(None, [classes.siblings.get(base)]))
        if not texts:
            if not replaces:
                yield finding_at(
                    child.node.bases[bases.index(base)],
                    diagnose,
                    child.node.name,
                    f"with inheritance the methods of `{base}` come first, but in the generated class the parent's would hide them",
                    f"Name `{base}` behind the parent if the parent's methods may come first; else define it in this file.",
                )
            continue
        everything = [one for text in texts for one in parse_class(text).members]
        members = [one for one in everything if one.is_function or not replaces]
        given = frozenset[str]().union(*(member.binds for member in members))
        hidden = (given & parent.binds) - child.binds_anew
        node = child.node.bases[bases.index(base)]
        for name in sorted(hidden):
            reason = f"with inheritance `{base}.{name}` comes first, but in the generated class the parent's `{name}` would hide it"
            yield finding_at(node, diagnose, name, reason, f"Define `{name}` in this class.")
        called = {
            super_attribute(one) for member in classes.kept if "super" in member.text for one in walk(member.node)
        }
        for name in sorted(called & given - hidden) if not replaces else ():
            reason = (
                f"the parent's lines call `super().{name}`, which in the generated class would reach `{base}.{name}`"
            )
            yield finding_at(node, diagnose, classes.name, reason, f"Name `{base}` behind the parent.")


def _lost_bases(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Bases of the parent that would be lost, since a class of the modular file has a name with the same ending. Those
    that are named after the base of all models replace each other, as in the corpus (altclip).
    """
    for node, base in zip(classes.child.node.bases, classes.child.bases):
        lost = classes.replaced[base] if base in classes.siblings and base not in classes.parent.bases else ""
        alike = classes.model_base and classes.model_base in base and classes.model_base in lost
        if lost and lost not in classes.ancestors.get(base, ()) and not alike:
            reason = f"`{base}` replaces the parent's base `{lost}`, since their names end alike, but does not inherit from it"
            cure = f"Give `{base}` a name with another ending, or let it inherit from `{lost}`."
            yield finding_at(node, diagnose, classes.name, reason, cure)
