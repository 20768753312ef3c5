"""A table of the pipeline and expert plans in transformers' own configuration classes, beside the derived plans."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

from modular_converter.parallel.errors import BuildError, PlanError
from modular_converter.parallel.pipeline.derive import pipeline_of_trace
from modular_converter.parallel.pipeline.prove import verify_pipeline
from modular_converter.parallel.plans.emit import to_library
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.prove import Derived, prove
from modular_converter.parallel.proof.subject import subject_of, with_mask
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.solve.experts import derive_experts
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.tiny.target import model_classes
from modular_converter.parallel.trace.record import record


if TYPE_CHECKING:
    from modular_converter.parallel.proof.on_ranks import RankPool
    from modular_converter.parallel.tiny.build import Target


PLAN_FIELDS = {"pipeline": "base_model_pp_plan", "expert": "base_model_ep_plan"}


# Configuration values with which a small instance has the parts that its plan names: experts divisible by 4, and layers
# that take more than hidden states from the layer before.
_SHARED_INDEX = {"indexer_types": ["full", "shared"], "index_topk": 3}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "expert": {
        "flex_olmo": {"num_experts": 8, "num_experts_per_tok": 2},
        "flint": {"mlp_only_layers": [0]},
        "gemma4_text": {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 48},
        "hunyuan_v1_moe": {"num_experts": 8, "moe_topk": 2},
        "lfm2_moe": {"num_dense_layers": 0},
    },
    "pipeline": dict.fromkeys(("glm_moe_dsa", "hy_v4", "mistral_large4_text"), _SHARED_INDEX),
}


@dataclass(frozen=True)
class ModelComparison:
    """The comparison for one model type.

    Attributes:
        outcome: ``same``, ``differs``, ``no plan derived`` or ``cannot be built``.
        why: the difference, or the reason.
        derived, committed: the verdict on each plan: ``verified``, or the reason against it; empty if it was not run.
        loader: the verdict on the derived plan through transformers' own loader.
    """

    model: str
    outcome: str
    why: str = ""
    derived: str = ""
    committed: str = ""
    loader: str = ""


def committed_types(kind: str) -> list[str]:
    """Model types whose configuration class has a plan of a kind, sorted."""
    return [name for name in sorted(CONFIG_MAPPING_NAMES) if getattr(CONFIG_MAPPING[name], PLAN_FIELDS[kind], None)]


def compare_committed(kind: str, name: str, pool: RankPool | None = None) -> ModelComparison:
    """Derive the plan of a model type, compare it with the committed plan, and run both.

    Args:
        pool: processes for the derived expert plan through transformers' own loader; None to skip this run.
    """
    overrides = SETTINGS[kind].get(name, {})
    try:
        target = _target(name)
        small = build(target, overrides)
    except PlanError as error:
        return ModelComparison(name, "cannot be built", " ".join(str(error).split())[:160])
    config: Any = small.model.config
    given = dict(getattr(config, PLAN_FIELDS[kind]))
    try:
        if kind == "pipeline":
            return _pipeline_row(name, small, given)
        return _expert_row(name, target, small, tuple(overrides.items()), given, pool)
    except PlanError as error:
        return ModelComparison(name, "no plan derived", " ".join(str(error).split())[:160])


def _pipeline_row(name: str, small: Any, given: dict[str, Any]) -> ModelComparison:
    inputs = with_mask(small.model, small.inputs)
    derived = pipeline_of_trace(record(small.model, inputs, name))
    source = _placed(small.model, PipelinePlan.from_library(name, given))
    committed = verify_pipeline(small.model, source, inputs).outcome
    if isinstance(derived, str):
        return ModelComparison(name, "no plan derived", derived, "", committed)
    ours, theirs = derived.to_library(), source.to_library()
    why = _differences(ours, theirs, _flow)
    state = verify_pipeline(small.model, derived, inputs).outcome
    return ModelComparison(name, "differs" if why else "same", why, state, committed)


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], said: Callable[[Any], str]) -> str:
    unlike = (key for key in dict.fromkeys([*theirs, *ours]) if ours.get(key) != theirs.get(key))
    return "; ".join(f"{key}: {said(ours.get(key))}, committed {said(theirs.get(key))}" for key in unlike)


def _placed(model: Any, plan: PipelinePlan) -> PipelinePlan:
    """A plan of the base model, with the paths of its modules in the outer model."""
    prefix = f"{model.base_model_prefix}."
    modules = dict(model.named_modules())
    entries = (
        replace(entry, module=prefix + entry.module)
        if entry.module not in modules and prefix + entry.module in modules
        else entry
        for entry in plan.entries
    )
    return replace(plan, entries=tuple(entries))


def _target(name: str) -> Target:
    """The base model of a type; if the library lists none, the first model class with its configuration."""
    try:
        return target_of(name)
    except BuildError:
        config = CONFIG_MAPPING[name]
        modeling = importlib.import_module(config.__module__.replace(".configuration_", ".modeling_"))
        own = [found for found in model_classes(modeling) if found.config_class is config]
        if not own:
            raise
        return target_of(f"{own[0].__module__}.{own[0].__qualname__}")


def _expert_row(
    name: str,
    target: Target,
    small: Any,
    overrides: tuple[tuple[str, Any], ...],
    given: dict[str, Any],
    pool: RankPool | None,
) -> ModelComparison:
    trace = record(small.model, small.inputs, name)
    plan = derive_experts(trace)
    source = fitting(from_library(name, given), small.model)
    subject = subject_of(small.model, small.inputs)
    committed = _both(lambda ranks: check_on_threads(subject, source, ranks)) if source.rules else ""
    if not plan.rules:
        reason = "; ".join(f"{path}: {text}" for path, text in plan.whole) or _no_experts(small.model)
        return ModelComparison(name, "no plan derived", reason, "", committed)
    ours, theirs = to_library(plan), dict(given)
    why = _differences(ours, theirs, lambda style: style or "nothing")
    state = _both(lambda ranks: check_on_threads(subject, plan, ranks))
    loader = ""
    if pool is not None:
        derived = Derived(target, small, trace, plan, subject, check_on_threads(subject, plan, 2), overrides)
        loader = prove(derived, plan, pool, "library").outcome
    return ModelComparison(name, "differs" if why else "same", why, state, committed, loader)


def _no_experts(model: Any) -> str:
    stacks = [name for name, parameter in model.named_parameters() if parameter.dim() > 2 and ".experts." in name]
    return f"{stacks[0]}: no axis of it is looked up by computed indices" if stacks else "this configuration has none"


def _both(check: Any) -> str:
    """The verdicts on 2 and on 4 ranks, in one text."""
    outcomes = {ranks: check(ranks).outcome for ranks in (2, 4)}
    bad = next((f"{text} ({ranks} ranks)" for ranks, text in outcomes.items() if text != "verified"), None)
    return bad or "verified"


def _flow(sides: tuple[list[str], list[str]] | None) -> str:
    return "nothing" if sides is None else f"{','.join(sides[0]) or '-'} -> {','.join(sides[1]) or '-'}"


def comparison_table(kind: str, rows: Iterable[ModelComparison]) -> str:
    """The rows as Markdown; rows with the same plan are only counted."""
    rows = list(rows)
    counts = Counter(row.outcome for row in rows)
    built = len(rows) - counts["cannot be built"]
    loaded = any(row.loader for row in rows)
    lines = [
        f"{len(rows)} model types with a `{PLAN_FIELDS[kind]}`, {built} of them built small: "
        f"{counts['same']} same, {counts['differs']} differ, {counts['no plan derived']} no plan derived. "
        f"Verified: {sum(row.derived == 'verified' for row in rows)} derived plans, "
        f"{sum(row.committed == 'verified' for row in rows)} committed ones"
        + (f", {sum(row.loader == 'verified' for row in rows)} derived ones through the library's loader" * loaded)
        + ".",
        "",
        "| model | outcome | why | derived plan | committed plan | library's loader |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.outcome != "same" or "refused" in row.derived + row.committed + row.loader:
            cells = (row.model, row.outcome, row.why, row.derived, row.committed, row.loader)
            lines.append("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
