"""Which plan a model is run with: the given one, the one in its classes if it verifies, else the derived one."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.engine.choice.kept import Kept, kept, log_kept
from modular_converter.parallel.errors import ApplyError, BuildError, PlanError, PlanFormatError
from modular_converter.parallel.plans.files import parse_plan, read_plan
from modular_converter.parallel.plans.patterns import entries_for
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.head_variants import HeadVariant, refusal
from modular_converter.parallel.proof.in_use import variants_in_use
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_threads import check_model_on_threads
from modular_converter.parallel.proof.prove import Derived, derive_model
from modular_converter.parallel.solve.read_library import from_library
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.tiny.build import Small, Target, build
from modular_converter.parallel.tiny.fields import fields_of, is_config
from modular_converter.parallel.tiny.head_ratios import ratios_like, wider_heads
from modular_converter.parallel.trace.record import record


logger = logging.getLogger(__name__)
GivenPlan = Plan | Mapping[str, str] | str | os.PathLike[str]
# (model class, overrides, ranks, plan) -> verdict, and (model class, overrides, ranks) -> derived plan, of this process
_VERDICTS: dict[tuple[Any, ...], Verdict] = {}
_DERIVED: dict[tuple[Any, ...], Derived] = {}
_SMALL: dict[tuple[Any, ...], Small] = {}
_IN_USE: dict[tuple[Any, ...], tuple[HeadVariant, ...]] = {}


def given_plan(given: GivenPlan, name: str) -> Plan:
    """A plan from a ``Plan``, transformers' ``{layer pattern: style}``, the path of a file, or its text (or JSON).

    Raises:
        PlanFormatError: it is none of these, or the file cannot be read.
    """
    if isinstance(given, Plan):
        return given
    if isinstance(given, Mapping):
        return from_library(name, dict(given))
    if not isinstance(given, (str, os.PathLike)):
        raise PlanFormatError(f"a plan is a Plan, a table of styles, a file or its text, not {given!r}")
    text = os.fspath(given)
    is_text = "\n" in text or text.lstrip().startswith("{")
    return parse_plan(text, Plan) if is_text else read_plan(text, Plan)


def select_plan(model: torch.nn.Module, given: GivenPlan | None, size: int) -> tuple[Plan, str]:
    """The plan for a model on ``size`` ranks, and where it is from.

    A given plan is taken as it is; where a small instance refuses it, a warning says so. The plan in the model's classes
    is taken if it verifies and leaves no more bytes on a rank than the derived one. What a rank keeps is logged.

    Raises:
        PlanError: there is none: the model is not the library's, or neither plan verifies; with the reasons.
    """
    ranks = 4 if size % 4 == 0 else 2
    if given is not None:
        plan, origin = _tried(model, given_plan(given, type(model).__name__), ranks)
    else:
        plan, origin = _own_or_derived(model, ranks)
    log_kept(model, plan, size)
    return plan, origin


def _own_or_derived(model: torch.nn.Module, ranks: int) -> tuple[Plan, str]:
    name, target, overrides = type(model).__name__, target_like(model), small_settings(model)
    committed = committed_plan(model, target, overrides)
    refused, own = committed if isinstance(committed, str) else "", None
    if isinstance(committed, Plan):
        verdict = _verified(target, overrides, ranks, committed)
        refused = f"the one in its classes is refused ({placed(verdict.layer, verdict.reason)})"
        own = kept(model, committed, ranks) if verdict.passed else None
    if isinstance(committed, Plan) and own is not None:
        said = f"the plan in {name}'s classes, verified on {ranks} ranks of a small instance"
        said += _said(_in_use(target, overrides)) + _scope(verdict)
        better = _better(model, target, overrides, ranks, own)
        if better is None:
            return committed, said
        refused = f"the one in its classes leaves {own.share:.1%} of the weights on each of {ranks} ranks"
    found = derived_plan(target, overrides, ranks)
    if found.verdict.passed and found.plan.rules:
        retreat = f"; a plan that shards more is refused ({found.retreat})" if found.retreat else ""
        said = f"the derived plan, verified on {ranks} ranks of a small instance"
        for hindrance in found.hindrances:
            logger.info("%s: %s", name, hindrance)
        return found.plan, f"{said}{_said(found.variants)}{_scope(found.verdict)}{retreat}; {refused}"
    reason = (
        placed(found.verdict.layer, found.verdict.reason) if not found.verdict.passed else "nothing can be sharded"
    )
    raise ApplyError(f"{name} has no plan: {refused}, and the derived one does not hold ({reason}); give one as plan=")


def _better(
    model: torch.nn.Module, target: Target, overrides: dict[str, Any], ranks: int, own: Kept
) -> Derived | None:
    """The derived plan, if it holds and leaves fewer bytes on a rank than the plan in the model's classes."""
    try:
        found = derived_plan(target, overrides, ranks)
        passed = found.verdict.passed and bool(found.plan.rules)
        return found if passed and kept(model, found.plan, ranks).rank < own.rank else None
    except PlanError as error:
        logger.info("no plan to set beside the one in the model's classes: %s", str(error).splitlines()[0])
        return None


def _said(variants: Sequence[HeadVariant]) -> str:
    """The uses, beside one plain forward, in which a plan was proven."""
    return f", also with {', '.join(variant.ratio for variant in variants)}" if variants else ""


def _scope(verdict: Verdict) -> str:
    """The scope of a proof, in brackets."""
    said = "; ".join(verdict.evidence.lines())
    return f" ({said})" if said else ""


def _tried(model: torch.nn.Module, plan: Plan, ranks: int) -> tuple[Plan, str]:
    """A given plan, and what a small instance says of it."""
    try:
        target, overrides = target_like(model), small_settings(model)
        wider = wider_heads(small_instance(target, overrides).model.config, overrides)
        verdict = _verified(target, overrides | (wider if _builds(target, overrides | wider) else {}), ranks, plan)
    except PlanError as error:
        return plan, f"the given plan, not verified: {str(error).splitlines()[0].partition('; ')[0]}"
    if verdict.passed:
        return plan, f"the given plan, verified on {ranks} ranks of a small instance{_scope(verdict)}"
    logger.warning(
        "the given plan is refused by a small instance of the model: %s", placed(verdict.layer, verdict.reason)
    )
    return plan, f"the given plan, which a small instance refuses ({placed(verdict.layer, verdict.reason)})"


def target_like(model: Any) -> Target:
    """The small instance's target for a model's own class and configuration class.

    Raises:
        ApplyError: the model has no configuration to build a small instance from.
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "model_type"):
        raise ApplyError(
            f"{type(model).__name__} has no configuration of transformers to derive a plan with; give one as plan=, such "
            "as modular_converter.parallel.derive makes from example inputs"
        )
    kinds = (type(model), type(config))
    paths = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    return Target(type(model).__name__, paths[0], paths[1])


def committed_plan(model: Any, target: Target, overrides: dict[str, Any]) -> Plan | str:
    """The tensor-parallel plan in the model's classes, rules for layers that it lacks left out; or why there is none."""
    rules = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or {}
    kept = entries_for(rules, model)
    if not kept:
        return "there is none in its classes"
    try:
        trace = None
        if any(style in STYLES and STYLES[style].cuts_output for style in kept.values()):
            small = small_instance(target, overrides)
            trace = record(small.model, small.inputs, target.name)
        return from_library(target.name, kept, trace)
    except PlanError as error:
        return f"the one in its classes says nothing here ({error})"


def small_overrides(config: Any, default: Any = None) -> dict[str, Any]:
    """Settings of a configuration that change a model's arithmetic but not its size.

    These are switches, kinds, parts that are left out (None), and single heads; those of a configuration within it
    have dotted names.
    """
    if not fields_of(config):
        return {}
    kind: Any = type(config)
    try:
        default = kind() if default is None else default
    except Exception:  # a configuration that has no default, such as one made of two others
        return {}
    found: dict[str, Any] = {}
    for item in fields_of(config):
        if item.name.startswith("_") or item.name in _NOT_ARITHMETIC or item.name.endswith(_IDS) or not item.init:
            continue
        value, usual = _value(config, item.name), _value(default, item.name)
        if is_config(value) and type(value) is type(usual):
            found |= {f"{item.name}.{name}": inner for name, inner in small_overrides(value, usual).items()}
            continue
        single = type(value) is int and value == 1 and "head" in item.name
        plain = isinstance(value, (bool, str)) or value is None or single
        if plain and value != usual and not isinstance(usual, (list, dict)):
            found[item.name] = value
    return found


def _value(config: Any, name: str) -> Any:
    try:
        return getattr(config, name, None)
    except Exception:  # configurations whose layers differ refuse the question
        return None


_IDS = ("_token_id", "_token_index", "_id")
_NOT_ARITHMETIC = {"transformers_version", "dtype", "name_or_path", "model_type", "architectures"}


def _key(target: Target, overrides: dict[str, Any], ranks: int) -> tuple[Any, ...]:
    return (target.model_class, target.config_class, tuple(sorted(overrides.items())), ranks)


def _verified(target: Target, overrides: dict[str, Any], ranks: int, plan: Plan) -> Verdict:
    key = (*_key(target, overrides, ranks), str(plan))
    if key not in _VERDICTS:
        small = small_instance(target, overrides)
        part = fitting(plan, small.model)
        verdict = check_model_on_threads(small.model, part, small.inputs, ranks)
        refused = refusal(_in_use(target, overrides), part, ranks) if verdict.passed else None
        _VERDICTS[key] = refused or verdict
    return _VERDICTS[key]


def small_settings(model: Any) -> dict[str, Any]:
    """Settings that give a small instance a model's arithmetic and ratios of heads, as far as one can be built so.

    Raises:
        PlanError: the model has no configuration, or no small instance can be built at all.
    """
    target, config = target_like(model), model.config
    overrides = small_overrides(config)
    if not _builds(target, overrides):
        overrides = {}
    ratios = ratios_like(config, small_instance(target, overrides).model.config)
    if not ratios or _builds(target, overrides | ratios):
        return overrides | ratios
    logger.warning("plans are tried with another ratio of heads to key/value heads: none can be built with this one")
    return overrides


def _builds(target: Target, overrides: dict[str, Any]) -> bool:
    try:
        small_instance(target, overrides)
    except BuildError:
        return False
    return True


def small_instance(target: Target, overrides: dict[str, Any]) -> Small:
    """The small instance of these settings, built once."""
    key = _key(target, overrides, 0)
    if key not in _SMALL:
        _SMALL[key] = build(target, overrides)
    return _SMALL[key]


def proven_inputs(model: Any) -> tuple[torch.nn.Module, list[dict[str, Any]]]:
    """The small instance of a model, and the inputs of its uses that are plain forwards of it in eval mode.

    Raises:
        PlanError: there is no small instance.
    """
    target, overrides = target_like(model), small_settings(model)
    small = small_instance(target, overrides)
    same = [variant.small for variant in _in_use(target, overrides) if variant.small.model is small.model]
    return small.model, [small.inputs, *(use.inputs for use in same)]


def _in_use(target: Target, overrides: dict[str, Any]) -> tuple[HeadVariant, ...]:
    key = _key(target, overrides, 0)
    if key not in _IN_USE:
        _IN_USE[key] = variants_in_use(target, small_instance(target, overrides), overrides)
    return _IN_USE[key]


def derived_plan(target: Target, overrides: dict[str, Any], ranks: int) -> Derived:
    """The plan that is derived with these settings, and proven in all uses, once.

    Raises:
        PlanError: no small instance can be built or traced.
    """
    key = _key(target, overrides, ranks)
    if key not in _DERIVED:
        _DERIVED[key] = derive_model(target, overrides, ranks, ratios=False, uses=True)
    return _DERIVED[key]
