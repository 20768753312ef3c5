"""Small instances of a user's model, with its class and settings: their uses, plans and verdicts."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence, Set
from typing import Any
from weakref import WeakKeyDictionary

import torch

from modular_converter.parallel.choice.kept_answers import kept_answer
from modular_converter.parallel.errors import ApplyError, BuildError, PlanError
from modular_converter.parallel.int8 import int8_layers_of
from modular_converter.parallel.modules import is_of_library
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.prove import Derived, HeadVariant, Instance, derive_model, small_copy
from modular_converter.parallel.tiny.adapters import adapters_of
from modular_converter.parallel.tiny.build import Small, Target, build
from modular_converter.parallel.tiny.fields import config_fields, is_config, names_read, ratios_like
from modular_converter.parallel.tiny.inputs import examples_of
from modular_converter.parallel.tiny.shrink import LAYERS
from modular_converter.parallel.torch_switches import one_thread


logger = logging.getLogger(__name__)
# By (target, overrides, ranks) and, for verdicts, the plan.
_VERDICTS: dict[tuple[Any, ...], Verdict] = {}
_DERIVED: dict[tuple[Any, ...], Derived] = {}
_INSTANCES: dict[tuple[Any, ...], Instance] = {}
# Modules with example inputs, which are instances themselves.
_OWN: WeakKeyDictionary[Any, Instance] = WeakKeyDictionary()


def target_like(model: Any) -> Target:
    """The target of small instances with a model's class and configuration class.

    Raises ``ApplyError`` if the model has no configuration of transformers.
    """
    if not is_of_library(model):
        if examples_of(model) is not None:
            raise ApplyError(
                f"{type(model).__name__} has no configuration of transformers, of which a small instance is made for ep, cp and "
                "sequence_parallel: leave them out, or for ep give a plan of experts as plan="
            )
        raise ApplyError(
            f"{type(model).__name__} has no configuration of transformers to derive a plan with: give example_inputs=, the "
            "arguments of one forward, or a plan as plan=, such as derive(small, inputs).plan or, for stages, "
            "derive_pipeline(small, inputs), both of modular_converter.parallel, of a small instance"
        )
    kinds = (
        vars(model).get("_own_class", type(model)),
        type(model.config),
    )  # of a model in shares: the caller's class
    paths = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
    alterations = tuple(one for one in (adapters_of(model), int8_layers_of(model)) if one is not None)
    return Target(type(model).__name__, paths[0], paths[1], alterations=alterations)


def without_trial(kinds: Set[type], small: Set[type]) -> str:
    """Why a small instance tells nothing about a model, in words: a class of module that it has not; empty if it has all."""
    strange = sorted(one.__name__ for one in kinds - small)
    return f"nothing can be tried, since a small instance of its class has no {strange[0]}" if strange else ""


def small_overrides(config: Any, default: Any = None) -> dict[str, Any]:
    """The settings that differ from the defaults and change a model's arithmetic but not its size.

    These are switches, kinds, absent parts (None), single heads, and a single label, whose loss is that of a number. Settings of
    an inner configuration have dotted names.
    """
    if not config_fields(config):
        return {}
    kind: Any = type(config)
    try:
        default = kind() if default is None else default
    except Exception:  # no defaults, such as a configuration made of two others
        return {}
    found: dict[str, Any] = {}
    for item in config_fields(config):
        if item.name.startswith("_") or item.name in _NOT_ARITHMETIC or item.name.endswith(_IDS) or not item.init:
            continue
        value, usual = _value(config, item.name), _value(default, item.name)
        if is_config(value) and type(value) is type(usual):
            found |= {f"{item.name}.{name}": inner for name, inner in small_overrides(value, usual).items()}
            continue
        single = type(value) is int and value == 1 and "head" in item.name
        words = _are_words(value)
        by_layer = words and _KINDS.search(item.name) is not None and _is_by_layer(config, value)
        plain = isinstance(value, (bool, str)) or value is None or single or (words and not by_layer)
        label = item.name == "id2label" and isinstance(value, dict) and len(value) == 1
        if value != usual and (label or (plain and (words or not isinstance(usual, (list, dict))))):
            found[item.name] = value
    return found


def undeclared_settings(config: Any, read: frozenset[str]) -> dict[str, Any]:
    """Switches, kinds and words that a configuration has beyond its fields, such as ``share_att_key`` of DeBERTa.

    Args:
        read: the names that the model's code reads; the others come from other programs.
    """
    found: dict[str, Any] = {}
    declared = {item.name for item in config_fields(config)}
    try:
        usual = vars(type(config)())
    except Exception:  # no defaults, such as a configuration made of two others
        usual = {}
    for name, value in vars(config).items():
        if name in declared and is_config(value):
            found |= {f"{name}.{inner}": one for inner, one in undeclared_settings(value, read).items()}
        plain = isinstance(value, (bool, str)) or _are_words(value)
        if plain and name in read - declared - _NOT_ARITHMETIC and (name not in usual or usual[name] != value):
            found[name] = value
    return found


def names_read_by(model: Any) -> frozenset[str]:
    """The names of a configuration's values in the code of a model and of its modules."""
    return frozenset().union(*map(names_read, {type(one).__module__ for one in model.modules()}))


def depth_fields(config: Any) -> dict[str, int]:
    """The numbers of layers in a configuration, by field."""
    values = {item.name: _value(config, item.name) for item in config_fields(config) if LAYERS.search(item.name)}
    return {name: value for name, value in values.items() if type(value) is int}


def layer_overrides(config: Any, small: Any, prefix: str = "") -> dict[str, Any]:
    """Settings that give a small configuration the layers of a large one: their number, and lists by layer.

    Empty if the small configuration has these layers, or if there are too many.
    """
    depths = depth_fields(config)
    found: dict[str, Any] = {}
    for item in config_fields(config):
        value, other = _value(config, item.name), _value(small, item.name)
        if is_config(value) and type(value) is type(other):
            found |= layer_overrides(value, other, f"{prefix}{item.name}.")
        elif item.init and not item.name.startswith("_") and value != other and type(value) is type(other):
            listed = isinstance(value, (list, tuple)) and (
                _is_by_layer(config, value) or _LAYER_LIST.search(item.name)
            )
            numbered = type(value) is int and value <= _DEEPEST and _NUMBERED.search(item.name)
            if item.name in depths and depths[item.name] <= _DEEPEST or listed or numbered:
                found[f"{prefix}{item.name}"] = value
    return found


def _are_words(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(word, str) for word in value)


def _is_by_layer(config: Any, value: Sequence[Any]) -> bool:
    return len(value) > 1 and len(value) in depth_fields(config).values()


def _value(config: Any, name: str) -> Any:
    try:
        return getattr(config, name, None)
    except Exception:  # raised by configurations whose layers have different values
        return None


# The most layers of a small instance: more take too long.
_DEEPEST = 64
# Settings that refer to layers by number.
_NUMBERED = re.compile(
    r"dense_replace|dense_layers|sparse_step|interval|pattern|period|offset|freq|_every|window_layers"
)
_LAYER_LIST = re.compile(r"layers?$|layer_ind|layers?_(types?|block|ids)|_idxs?$|_layers_")
# Lists of words by layer, such as ``indexer_types``; ``pos_att_type`` of DeBERTa lists what all layers do.
_KINDS = re.compile(rf"{_LAYER_LIST.pattern}|types$")
_IDS = ("_token_id", "_token_index", "_id")
_NOT_ARITHMETIC = {"transformers_version", "dtype", "name_or_path", "model_type", "architectures"}


def _key(target: Target, overrides: dict[str, Any], ranks: int) -> tuple[Any, ...]:
    return (target, repr(sorted(overrides.items())), ranks)


def verified(target: Target, overrides: dict[str, Any], ranks: int, plan: Plan, uses: bool = True) -> Verdict:
    """The verdict of a small instance on a plan; cached.

    Args:
        uses: in all uses; else in one plain forward with new weights.
    """
    known, key = _instance(target, overrides), (*_key(target, overrides, ranks), str(plan), uses)
    if key not in _VERDICTS:
        fits = fitting(plan, known.small.model)
        _VERDICTS[key] = known.verdict(fits, ranks) if uses else check_on_threads(known.subject, fits, ranks)
    return _VERDICTS[key]


@one_thread()
def small_settings(model: Any) -> dict[str, Any]:
    """Settings that give a small instance a model's arithmetic and ratios of heads, as far as it can be built.

    Raises ``PlanError`` if the model has no configuration, or no small instance can be built at all.
    """
    target, config = target_like(model), model.config
    declared = small_overrides(config)
    sets = [declared | undeclared_settings(config, names_read_by(model)), declared]
    if getattr(config, "pad_token_id", None) is not None:  # without one, a classifier of rows takes one row alone
        sets += [one | {"pad_token_id": 0} for one in sets]
    overrides = next((one for one in sets if builds(target, one)), {})
    ratios = ratios_like(config, small_instance(target, overrides).model.config)
    if not ratios or builds(target, overrides | ratios):
        return overrides | ratios
    logger.warning("plans are tried with another ratio of heads to key/value heads: no small instance has the model's")
    return overrides


def settings_with_layers(model: Any, target: Target, overrides: dict[str, Any]) -> dict[str, Any]:
    """Settings of a small instance with the layers of a model; equal to ``overrides`` if it has them already."""
    return overrides | layer_overrides(model.config, small_instance(target, overrides).model.config)


def builds(target: Target, overrides: dict[str, Any]) -> bool:
    """Whether a small instance can be built and run with these settings."""
    try:
        small_instance(target, overrides)
    except BuildError:
        return False
    return True


def small_instance(target: Target, overrides: dict[str, Any]) -> Small:
    """The small instance of these settings; cached."""
    return _instance(target, overrides).small


@one_thread()
def _instance(target: Target, overrides: dict[str, Any]) -> Instance:
    key = _key(target, overrides, 0)
    if key not in _INSTANCES:
        with torch.random.fork_rng(devices=[]):  # it is seeded, and a caller's forward may be under way
            _INSTANCES[key] = Instance(target, build(target, overrides), overrides)
    return _INSTANCES[key]


@one_thread()
def proven_inputs(model: Any) -> tuple[torch.nn.Module, list[dict[str, Any]]]:
    """The small instance of a model, and the inputs of its uses that are plain forwards in eval mode.

    Raises ``PlanError`` if there is no small instance.
    """
    target, overrides = target_like(model), small_settings(model)
    small = small_instance(target, overrides)
    same = [variant.small for variant in in_use(target, overrides) if variant.small.model is small.model]
    return small.model, [small.inputs, *(use.inputs for use in same)]


def in_use(target: Target, overrides: dict[str, Any]) -> tuple[HeadVariant, ...]:
    """The uses of a small instance beside one plain forward; cached."""
    return _instance(target, overrides).in_use


def own_instance(model: torch.nn.Module) -> Instance | None:
    """A copy of a module with example inputs, to derive and prove a plan with; None without example inputs.

    Raises ``BuildError`` if the module is too large, or does not run with the inputs.
    """
    inputs = examples_of(model)
    if inputs is None:
        return None
    if model not in _OWN:
        kind, small = type(model), small_copy(model, inputs)
        _OWN[model] = Instance(Target(small.name, f"{kind.__module__}.{kind.__qualname__}", ""), small, {})
    return _OWN[model]


def _instance_like(model: Any) -> Instance:
    return own_instance(model) or _instance(target_like(model), small_settings(model))


def is_of_the_library(model: Any) -> bool:
    """Whether a model's code is the library's."""
    own = (kind.__module__ for kind in type(model).__mro__ if not kind.__module__.startswith("modular_converter."))
    return next(own).startswith("transformers.")


@one_thread()
def untried_branches_of(model: Any) -> tuple[str, ...]:
    """The sides of branches on data, in words, that no run of a model's small instance has tried."""
    try:
        return _instance_like(model).untried
    except PlanError:
        return ()


@one_thread()
def unproven_arguments(model: Any) -> frozenset[str]:
    """The optional arguments of a model's forward in no run of its small instance; empty without a small instance."""

    def names() -> list[str]:
        try:
            return sorted(_instance_like(model).unproven_arguments)
        except PlanError:
            return []

    return frozenset(kept_answer(model, "arguments in no run", names, keeps=lambda found: True))


def derived_plan(target: Target, overrides: dict[str, Any], ranks: int) -> Derived:
    """The plan that is derived with these settings and proven in all uses; cached.

    Raises ``PlanError`` if no small instance can be built or traced.
    """
    key = _key(target, overrides, ranks)
    if key not in _DERIVED:
        known = _instance(target, overrides)
        _DERIVED[key] = derive_model(target, overrides, ranks, ratios=False, uses=True, known=known)
    return _DERIVED[key]
