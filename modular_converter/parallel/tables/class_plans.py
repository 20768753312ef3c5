"""The plans in transformers' classes: that of a model with its parts, and the model types that have one."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from modular_converter.parallel.errors import BuildError, PlanError, one_line
from modular_converter.parallel.plans.patterns import entries_for
from modular_converter.parallel.tables.row_file import Row
from modular_converter.parallel.tiny.build import target_of


def plan_in_classes(model: Any) -> dict[str, str]:
    """The plan in the classes of a model and its parts, as transformers gathers it for the model.

    Its own additions are left out: it also cuts embeddings of tokens that no plan names.
    """
    written = {pattern for part in model.modules() for pattern in _written(part)}
    gathered = getattr(model, "tp_plan", None) or {}
    kept = {name: style for name, style in gathered.items() if any(f".{name}".endswith(f".{end}") for end in written)}
    return entries_for(kept, model)


def _written(part: Any) -> dict[str, str]:
    config = getattr(part, "config", None)
    return {**(getattr(type(part), "_tp_plan", None) or {}), **(getattr(config, "base_model_tp_plan", None) or {})}


def types_in(model: Any) -> list[str]:
    """The model types with a plan among a model and its parts, sorted."""
    parts = [part for part in model.modules() if getattr(part, "_tp_plan", None)]
    configs = [part.config for part in parts if getattr(getattr(part, "config", None), "base_model_tp_plan", None)]
    return sorted({config.model_type for config in configs})


def have_row_here(types: Iterable[str], model: Any) -> bool:
    """Whether one of the types is the model's own, or a part's that the library lists no base model for."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return any(name == model.config.model_type or name not in MODEL_MAPPING_NAMES for name in types)


@cache
def types_with_plan() -> tuple[str, ...]:
    """All model types of the library with a ``base_model_tp_plan``, sorted."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    return tuple(sorted(name for name in CONFIG_MAPPING if getattr(CONFIG_MAPPING[name], "base_model_tp_plan", None)))


def types_without_row(rows: Iterable[Row]) -> str:
    """How many model types with a plan have a row of their own or are parts of one, and why the others have none."""
    rows = list(rows)
    having = [row for row in rows if row.get("committed")]
    own = {row["model"] for row in having}
    inside = {name: row["model"] for row in reversed(having) for name in row["committed"].get("types", ())}
    failed = {row["model"]: row["reason"] for row in rows if row["state"] == "failed"}
    wanted = types_with_plan()
    parts = [f"{name} in {inside[name]}" for name in wanted if name not in own and name in inside]
    missing = [name for name in wanted if name not in own and name not in inside]
    said = [f"{sum(name in own for name in wanted)} of the {len(wanted)} types with a plan have a row of their own"]
    said += [f"{len(parts)} are parts of the model of another row ({', '.join(parts)})"] if parts else []
    reasons: dict[str, list[str]] = {}
    for name in missing:
        reasons.setdefault(_why_none(name, failed), []).append(name)
    said += [f"{len(names)} have none because {why} ({', '.join(names)})" for why, names in reasons.items()]
    return "; ".join(said) + "."


def _why_none(name: str, failed: dict[str, str]) -> str:
    """Why a model type with a plan has no row for it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if name in failed:
        return "no small instance of their models runs"
    try:
        config = target_of(name).load()[1]
    except BuildError:
        return "the library lists no base model for them, and no model with a row has them as parts"
    except PlanError as error:
        return one_line(error, 100)
    if config is not CONFIG_MAPPING[name]:
        return f"the library runs them with the model classes of {config.model_type}"
    return "they are not among these rows"
