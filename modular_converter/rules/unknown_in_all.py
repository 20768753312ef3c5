"""MC310: a name in `__all__` that nothing defines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity, did_you_mean
from modular_converter.rules._examples import NEW_MLP, OLD_MLP


if TYPE_CHECKING:
    from modular_converter.facts.conversion import Facts


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
    bad=(
        OLD_MLP,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    pass


__all__ = ["NewMLP", "NewModel"]
""",
        ),
    ),
    good=(
        OLD_MLP,
        NEW_MLP,
    ),
)


def diagnose(location: Location, name: str, *, candidates: Iterable[str] = ()) -> Diagnostic:
    """`candidates` are the names that the generated files do define."""
    return Diagnostic(
        RULE,
        location,
        f"`__all__` lists `{name}`, which no generated file defines",
        help=did_you_mean(name, candidates) + "Correct the name, or take it out of `__all__`.",
    )


def check(facts: Facts) -> Iterator[Diagnostic]:
    """Find names in `__all__` that are neither generated nor bound by the modular file."""
    for name in facts.exported:
        if not any(name in bound for bound in (facts.generated, facts.definitions, facts.imported)):
            yield diagnose(facts.at(name, facts.definitions["__all__"].line), name, candidates=facts.generated)
