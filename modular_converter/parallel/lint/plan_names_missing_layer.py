"""MC311: a parallel plan for a layer that is gone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean
from modular_converter.parallel.lint._layers import PlanEntry, plan_entries


if TYPE_CHECKING:
    from modular_converter.facts import Facts, GeneratedDefinition


RULE = Rule(
    code="MC311",
    name="plan-names-missing-layer",
    severity=Severity.WARNING,
    summary="an entry of a parallel plan names a layer that the generated model does not have",
    explanation="""\
The configuration, often inherited whole, says how each layer is split over devices. This entry names a layer that the
generated model no longer has. Such an entry matches nothing and is passed over at run time, so the layer that took
its place is not split at all, or is split the wrong way.

Override the plan in the configuration of the modular file, with the names that the generated model has.
""",
)


def diagnose(location: Location, entry: str, plan: str, *, candidates: Iterable[str] = ()) -> Finding:
    """The finding for a pattern `entry` in the attribute `plan` (`base_model_tp_plan`)."""
    return Finding(
        RULE,
        location,
        f"`{plan}` has an entry `{entry}`, but the generated model has no such layer",
        help=did_you_mean(entry, candidates) + f"Override `{plan}` in the modular file with the layers that exist.",
    )


def check_plan_names_missing_layer(facts: Facts) -> Iterator[Finding]:
    """Find plan entries of the generated configuration with a part that no generated class has as an attribute."""
    configuration, modeling = facts.files.get("configuration", {}), facts.files.get("modeling", {})
    classes = [one for one in configuration.values() if one.is_class and "_plan" in one.text] if modeling else []
    entries = [(one, entry) for one in classes for entry in plan_entries(one.members, facts.plan_names)]
    parts = {part for _, entry in entries for part in entry.pattern.split(".") if part.isidentifier()}
    missing = _missing(parts, [one for one in modeling.values() if one.is_class])
    for definition, entry in entries:
        if not missing.isdisjoint(entry.pattern.split(".")):
            yield diagnose(_place(facts, definition.name, entry), entry.pattern, entry.plan)


def _missing(parts: set[str], classes: Sequence[GeneratedDefinition]) -> set[str]:
    """The parts that no class sets as an attribute or has in a string, which may be the name of a layer."""
    # This search finds nearly all parts, in a twentieth of the time for parsing a model.
    missing = {part for part in parts if not any(f"self.{part} = " in one.text for one in classes)}
    for one in classes if missing else ():
        for node in ast.walk(one.members.node):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                missing.discard(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                missing.discard(node.value)
    return missing


def _place(facts: Facts, name: str, entry: PlanEntry) -> Location:
    """The place of an entry in the modular file; if it is inherited, the place of the class."""
    configuration = facts.classes.get(name)
    if configuration is None:
        return Location(facts.path)
    written = (own.node for own in plan_entries(configuration.members, facts.plan_names) if own[:2] == entry[:2])
    node = next(written, None)
    return facts.at_class(configuration) if node is None else facts.at_node(configuration, node)
