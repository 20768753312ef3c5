"""MC105: a name that the neighbour does not define."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC105",
    name="unknown-parent",
    severity=Severity.ERROR,
    summary="the neighbour does not define the imported name",
    explanation="""\
The model file exists, but the class or function that is imported from it does not. Perhaps it was renamed, or lives
in another file of that model, such as `configuration_old` instead of `modeling_old`.

Import the name as the neighbour's source spells it. A name that the neighbour itself imports must be
imported from the module that defines it. A name with only the model's name in another case is MC329, a warning.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMlp


class NewMLP(OldMlp):
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, name: str, neighbour: str, *, candidates: Iterable[str] = ()) -> Finding:
    """`neighbour` is the path of the file that lacks `name`, `candidates` are the names that it defines."""
    return Finding(
        RULE,
        location,
        f"`{name}` is not defined in {neighbour}",
        help=did_you_mean(name, candidates) + "Import a name from the file that defines it.",
    )
