"""The names that copies of a neighbour's definitions get."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._words import name_heirs


if TYPE_CHECKING:
    from modular_converter.facts import Facts


AMBIGUOUS_PREFIX = Rule(
    code="MC306",
    name="ambiguous-prefix",
    severity=Severity.WARNING,
    summary="classes derived from one neighbour begin with different names",
    explanation="""\
The classes and functions that a parent needs are copied from its file under new names. Your class names decide the
prefix of the new names: `class NewTextMLP(OldMLP)` asks for `NewText…`. Here two classes ask for different prefixes,
but all copies from one file get the same prefix: the one that most classes ask for; on a tie the model's own name if a
class asks for it, else the prefix of the last class.

With two parts of one model from one file (`NewTextMLP`, `NewTextLayer`, `NewVisionMLP`, `NewVisionLayer`), the code
that `NewVisionLayer` inherits would use `NewTextMLP`.

Give all classes that inherit from one file the same prefix. Where two parts of a model need different prefixes, take
the second part from another model's file, or from a class of this file,
or override the code that uses the class of the other part.
""",
)


def ambiguous_prefix(location: Location, neighbour: str, prefixes: tuple[str, ...], chosen: str, cure: str) -> Finding:
    """The classes ask for `prefixes`; all copies from `neighbour` get `chosen`. `cure` gives names for the classes."""
    listed = ", ".join(f"`{prefix}`" for prefix in prefixes)
    return Finding(
        AMBIGUOUS_PREFIX,
        location,
        f"classes from {neighbour} ask for the prefixes {listed}; all copies from it get `{chosen}`",
        help=cure,
    )


def other_tower(location: Location, user: str, found: str, wanted: str, parent: str) -> Finding:
    """The inherited code of `user` uses `found`, an heir of `parent`, where `wanted` would have the prefix of `user`."""
    return Finding(
        AMBIGUOUS_PREFIX,
        location,
        f"the generated `{user}` would use `{found}` in place of `{parent}`, not `{wanted}`",
        help=f"Override the code of `{user}` that uses `{parent}`, and write `{wanted}` there.",
    )


def check_ambiguous_prefix(facts: Facts) -> Iterator[Finding]:
    """Find neighbours whose copies get a prefix that not all classes ask for, and classes that get another tower's."""
    yield from _other_towers(facts)
    for neighbour in facts.neighbours:
        is_ambiguous = len(neighbour.asked) > 1 and not neighbour.collides_with
        heir = facts.renamed_heir(neighbour) if is_ambiguous and facts.names_unseen(neighbour) else None
        if heir is not None:
            cure = name_heirs(*facts.naming(neighbour))
            yield ambiguous_prefix(facts.at_class(heir), neighbour.dotted, neighbour.asked, neighbour.prefix, cure)


def _other_towers(facts: Facts) -> Iterator[Finding]:
    """Heirs whose inherited code uses an heir of another prefix, though the modular file has one of their own, or though
    both have a prefix of their own: `NewTextModel` with a `NewVisionLayer`.
    """
    heirs: dict[tuple[str, str], dict[str | None, str]] = {}
    for heir, parent in facts.heirs:
        heirs.setdefault((parent.neighbour.path, parent.original), {})[parent.asked] = heir.name
    for user, above in facts.heirs:
        generated = facts.generated.get(user.name)
        uses = generated.uses if generated is not None else frozenset[str]()
        for (path, original), same in heirs.items():
            if path != above.neighbour.path or user.name in same.values():
                continue
            for asked, name in same.items():
                prefixes = asked or facts.cased, above.asked or facts.cased
                wanted = same.get(above.asked) or _own_form(name, *prefixes, facts.cased)
                if name != wanted and name in uses and not re.search(rf"\b{name}\b", user.text):
                    yield other_tower(facts.at_class(user), user.name, name, wanted, original)


def _own_form(name: str, asked: str, own: str, model: str) -> str:
    """The name of a class with the prefix `own`, where that is another tower's than `asked`, which it has. A prefix that is
    the model's name is no tower's.
    """
    is_apart = model not in (asked, own) and not own.startswith(asked) and not asked.startswith(own)
    return f"{own}{name.removeprefix(asked)}" if is_apart else name


COLLIDING_PREFIX = Rule(
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
)


def colliding_prefix(location: Location, neighbour: str, prefix: str, taken: str, chosen: str, cure: str) -> Finding:
    """`taken` is the class of `neighbour` that `prefix` collides with, `chosen` the prefix that is used instead. `cure`
    gives names for the classes.
    """
    return Finding(
        COLLIDING_PREFIX,
        location,
        f"the prefix `{prefix}` collides with `{taken}` of {neighbour}; `{chosen}` is used instead",
        help=cure,
    )


def check_colliding_prefix(facts: Facts) -> Iterator[Finding]:
    """Find neighbours whose copies get another prefix than the classes ask for."""
    for neighbour in facts.neighbours:
        heir = facts.renamed_heir(neighbour) if neighbour.collides_with and facts.names_unseen(neighbour) else None
        if heir is not None:
            others = [prefix for prefix in neighbour.asked if prefix != neighbour.prefix]
            # The prefix adds to the model's own name a word that the colliding class has in its name.
            added = (prefix for prefix in others if prefix[len(neighbour.prefix) :] in neighbour.collides_with)
            wanted = next(added, others[0])
            place, taken, chosen = facts.at_class(heir), neighbour.collides_with, neighbour.prefix
            yield colliding_prefix(
                place, neighbour.dotted, wanted, taken, chosen, name_heirs(*facts.naming(neighbour))
            )
