"""MC311: entries of parallel plans that name a layer which the generated model does not have."""

from __future__ import annotations

import re
from collections.abc import Iterator

from modular_converter.diagnostics import Diagnostic, Location
from modular_converter.lint.context import Context
from modular_converter.records import Definition, Role


PLANS = (
    "base_model_tp_plan",
    "base_model_pp_plan",
    "base_model_ep_plan",
    "_tp_plan",
    "_pp_plan",
    "_ep_plan",
    "ep_plan",
)

_PLAN = re.compile(rf"^[ \t]+({'|'.join(PLANS)})\b[^=\n]*=[ \t]*\{{", re.MULTILINE)
_KEY = re.compile(r"(?<![fF])[\"']([\w.*]+)[\"'][ \t]*:")


def check_plans(context: Context) -> Iterator[Diagnostic]:
    """Compare the plans of the generated configuration with the attributes of the generated model."""
    configuration, modeling = context.collection.file("configuration"), context.collection.file("modeling")
    if configuration is None or modeling is None:
        return
    plans = [one for one in configuration.definitions.values() if "_plan" in one.text]
    entries = [(one, plan, entry) for one in plans for plan, entry in _entries(one.text)]
    model = "".join(one.text for one in modeling.definitions.values() if one.role is Role.CLASS) if entries else ""
    parts = {part for _, _, entry in entries for part in entry.split(".") if part.isidentifier()}
    missing = {part for part in parts if not _has_layer(model, part)}
    for definition, plan, entry in entries:
        if not missing.isdisjoint(entry.split(".")):
            from modular_converter.rules import plan_names_missing_layer

            place = _place(context, definition, entry)
            yield plan_names_missing_layer.diagnose(place, entry, plan)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The plans of a class that are literals: name of the plan, pattern."""
    for match in _PLAN.finditer(text):
        literal = text[match.end() :].partition("}")[0]
        for key in _KEY.findall(literal):
            yield match[1], key


def _has_layer(model: str, name: str) -> bool:
    """Whether the text of a model assigns an attribute, or has a string that may name a layer."""
    if f"self.{name} =" in model or f'"{name}"' in model:
        return True
    return re.search(rf"\bself\.{name}[ \t]*(?:,|:|=(?!=))|[\"']{name}[\"']", model) is not None


def _place(context: Context, definition: Definition, entry: str) -> Location:
    """The entry where the modular file writes it, else the class that inherits it."""
    built = context.classes.get(definition.name)
    if built is None:
        return Location(context.path)
    written = built.statement.text.find(f'"{entry}"')
    if written < 0:
        return context.at_class(built)
    line = built.statement.line + built.statement.text.count("\n", 0, written)
    column = written - built.statement.text.rfind("\n", 0, written)
    return Location(context.path, line, column, line, column + len(entry) + 2)
