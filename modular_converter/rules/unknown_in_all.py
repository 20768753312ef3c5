"""MC310: a name in `__all__` that nothing defines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, did_you_mean, split_lines
from modular_converter.rules._edits import at, exports
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC310",
    name="unknown-in-all",
    severity=Severity.WARNING,
    summary="`__all__` lists a name that the generated file does not define",
    explanation="""\
No generated file defines this name. `from package.models.new.modeling_new import *` would fail, and so would the lazy
imports of the package.

Correct its spelling, define it, or take it out of `__all__`.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    pass


__all__ = ["NewMLP", "NewModel"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, name: str, *, candidates: Iterable[str] = ()) -> Finding:
    """`candidates` are the names that the generated files do define."""
    return Finding(
        RULE,
        location,
        f"`__all__` lists `{name}`, which no generated file defines",
        help=did_you_mean(name, candidates) + "Correct the name, or take it out of `__all__`.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find names in `__all__` that no generated file defines, nor imports because it uses them."""
    for name in facts.exported:
        is_used = name in facts.imported and any(name in one.uses for one in facts.generated.values())
        if name not in facts.generated and not is_used:
            yield diagnose(facts.at(name, facts.definitions["__all__"].line), name, candidates=facts.generated)


def fix(text: str, finding: Finding) -> Fix | None:
    """Take the name out of `__all__`, unless it is only misspelt."""
    found = exports(text)
    if found is None or finding.help.startswith("Did you mean"):
        return None
    names = found[0]
    name = finding.message.split("`")[3]
    places = [number for number, one in enumerate(names) if one.value == name]
    if len(places) != 1 or len(names) == 1:
        return None
    (place,) = places
    top = names[place - 1].lineno if place else found[1].lineno
    bottom = names[min(place + 1, len(names) - 1)].lineno
    if top < bottom and any("#" in line for line in split_lines(text)[top - 1 : bottom]):
        return None  # of which name a comment speaks is not known
    if place + 1 < len(names):  # up to the next name, else from the name before
        start, end = at(text, names[place].lineno, names[place].col_offset), names[place + 1]
        edit = Edit(*start, *at(text, end.lineno, end.col_offset), "")
    else:
        before, last = names[place - 1], names[place]
        start = at(text, before.end_lineno or 0, before.end_col_offset or 0)
        edit = Edit(*start, *at(text, last.end_lineno or 0, last.end_col_offset or 0), "")
    return Fix(f"Take `{name}` out of `__all__`", (edit,), changes_generated=True)
