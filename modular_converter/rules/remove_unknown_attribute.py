"""MC202: the removal of a class attribute that the parent does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import SIMILAR, Finding, Location, Rule, Severity, did_you_mean, nearest
from modular_converter.rules._examples import configuration_old, examples


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC202",
    name="remove-unknown-attribute",
    severity=Severity.ERROR,
    summary="`x = AttributeError()` names an attribute that the parent does not have",
    explanation="""\
`x = AttributeError()` in a class body takes the attribute `x` of the parent out of the generated class. Here the
parent has no such attribute: it is misspelt, or the parent has changed since, and the line does nothing. Where the
source of an ancestor cannot be read (`nn.Module`), a name that is close to one of the parent's is a warning.

Correct the name, or drop the line. An attribute that is assigned in a method (`self.x = …`) is removed with
`del self.x` after the `super()` call in that method.
""",
    examples=examples(
        configuration_old("""\
class OldConfig:
    hidden_size: int = 8
    mlp_bias: bool = False
"""),
        bad="""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    mlp_bais = AttributeError()


__all__ = ["NewConfig"]
""",
        good="""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    mlp_bias = AttributeError()


__all__ = ["NewConfig"]
""",
    ),
)


def diagnose(
    location: Location, attribute: str, parent: str, *, candidates: Iterable[str] = (), is_certain: bool = True
) -> Finding:
    """`candidates` are the attributes that `parent` does have, as far as its ancestors can be read: `is_certain` if all
    can.
    """
    lacks = f"`{parent}` has no attribute `{attribute}`" if is_certain else f"`{parent}` defines no `{attribute}`"
    return Finding(
        RULE,
        location,
        f"`{attribute} = AttributeError()` removes nothing: {lacks}",
        help=did_you_mean(attribute, candidates)
        + f"Correct the name or drop the line. An instance attribute is removed by `del self.{attribute}`.",
        severity_override=None if is_certain else Severity.WARNING,
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find removals of names that neither the parent nor an ancestor of it binds.

    Where the source of an ancestor cannot be read, a name is taken for misspelt if it is close to one that is known.
    """
    for heir, parent in facts.heirs:
        removals = list(heir.members.removals) if "= AttributeError(" in heir.text else []
        known, is_certain = facts.attributes_of(parent) if removals else (frozenset[str](), True)
        for target in removals:
            if target.id not in known and (is_certain or nearest(target.id, known, SIMILAR)):
                place = facts.at_node(heir, target)
                yield diagnose(place, target.id, parent.original, candidates=known, is_certain=is_certain)
