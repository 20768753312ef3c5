"""The form of torchtitan's transformers backend: ``ShardingConfig``s for the modules of a decoder with its head.

Facts of torchtitan 0.3.0 (``experiments/transformers_modeling_backend``, ``protocols/module.py``), which
`utils/train_exports.py` runs:

* Forwards run on local tensors. Each module has a layout for its states, and for its input and output before and after a
  collective, in ``spmd_types``: ``I`` whole with a whole gradient, ``R`` whole with a partial gradient, ``P`` partial,
  ``S(d)`` cut along a dimension.
* It reaches the parts ``embed_tokens``, ``layers``, ``norm`` or ``final_layernorm``, ``rotary_emb`` and ``lm_head`` alone.
* Each ``nn.Embedding`` looks up a share of the vocabulary, and the loss takes shares of the vocabulary from the head. It
  takes ``padding_idx`` for a row of the share, whose gradient is then missing: the written code refuses that.
* A bias of a row-wise layer would be added once on each device. Layers of experts become torchtitan's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from modular_converter.parallel.exports.restrict import Modules, Vocabulary, inexpressible_by
from modular_converter.parallel.plans.emit import of_layers
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import matches
from modular_converter.parallel.styles.layout import (
    COLWISE,
    ENTERING_INPUTS,
    ENTERING_OUTPUT,
    GATHERED,
    ROWWISE,
    SHARE,
    SPLIT_INPUT,
    SUMMED_GRADIENT,
    SUMMED_OUTPUT,
    VOCABULARY,
    WeightLayout,
)
from modular_converter.parallel.trace.graph import Trace


# Layout -> of the weight, of the bias, of the input before and after, of the output before and after.
_LINEAR: dict[WeightLayout, dict[str, str]] = {
    COLWISE: {"weight": "S(0)", "bias": "S(0)", "input": "I, R"},
    GATHERED: {"weight": "S(0)", "bias": "S(0)", "input": "I, R", "output": "S(-1), I"},
    ROWWISE: {"weight": "S(1)", "output": "P, I"},
    SPLIT_INPUT: {"weight": "S(1)", "input": "I, S(-1)", "output": "P, I"},
}
_TABLE = {"weight": "S(0)", "output": "P, I"}
_OUTPUTS = {ENTERING_OUTPUT: "I, R", SUMMED_OUTPUT: "P, I"}
_HEAD = "lm_head"
_NORMS = {"norm", "final_layernorm"}
_PARTS = {"embed_tokens", "layers", "rotary_emb", *_NORMS}

_TEXT = '''\
"""The sharding of {model} for torchtitan, whose own function sets what it finds by the names of modules.

    from torchtitan.experiments.transformers_modeling_backend import hf_sharding
    hf_sharding.set_hf_sharding_configs = set_sharding_configs
"""

import re

import spmd_types as spmd
from torchtitan.distributed.parallel_dims import MeshAxisName, SpmdLayout
from torchtitan.protocols.sharding import ShardingConfig


I, P, R, S = spmd.I, spmd.P, spmd.R, spmd.S
# Pattern of a module -> the layouts of its states on the devices of a tensor-parallel group, and (before, after) a
# collective of its inputs and its output. States without a layout are whole.
SHARDINGS = {{
{entries}}}


def _states(tp):
    return SpmdLayout({{MeshAxisName.DP: R, MeshAxisName.CP: R, MeshAxisName.TP: tp}})


def _activations(tp):
    return SpmdLayout({{MeshAxisName.DP: S(0), MeshAxisName.CP: S(1), MeshAxisName.TP: tp}})


def sharding_config(states, given):
    """The configuration of a module with these names of states."""
    pairs = {{name: given[name] for name in given if isinstance(given[name], tuple)}}
    before = {{name: _activations(pair[0]) for name, pair in pairs.items()}}
    after = {{name: _activations(pair[1]) for name, pair in pairs.items()}}
    return ShardingConfig(
        state_shardings={{name: _states(given.get(name, I)) for name in states}},
        out_src_shardings=before.pop("output", None),
        out_dst_shardings=after.pop("output", None),
        in_src_shardings=before or None,
        in_dst_shardings=after or None,
    )


def set_sharding_configs(model, *, enable_sp=False):
    """Set the configurations of all modules of torchtitan's model of a transformers model; sequences stay whole."""
    for path, module in model.model.named_modules():
        if getattr(module, "padding_idx", None) is not None:
            raise ValueError(f"{{path}}.padding_idx would be taken for a row of each device's share: set it to None")
        given = next((SHARDINGS[one] for one in SHARDINGS if re.fullmatch(one.replace("*", r"\\d+"), path)), {{}})
        states = [name for name, _ in module.named_parameters(recurse=False)]
        states += [name for name, _ in module.named_buffers(recurse=False)]
        if given or states:
            module._sharding_config = sharding_config(states, given)
'''


def _reasons(rule: PlanRule, modules: Modules) -> Iterator[str]:
    layout = rule.layout
    layers = [modules[path] for path in matches(rule.pattern, modules)]
    if rule.parts or rule.units or rule.dim is not None and layout != SHARE:
        yield str(rule).partition(" ")[2]
    elif layout == VOCABULARY:
        if any(type(layer) is not torch.nn.Embedding for layer in layers):
            yield f"a {type(layers[0]).__name__}, and torchtitan looks up shares of an Embedding alone"
    elif layout in _LINEAR:
        yield from of_layers(rule, modules, torch.nn.Linear)
        if layout in (ROWWISE, SPLIT_INPUT) and any(getattr(layer, "bias", None) is not None for layer in layers):
            yield "its bias would be added once on each device"
    elif layout not in (SHARE, SUMMED_GRADIENT, ENTERING_INPUTS, *_OUTPUTS):
        yield str(rule).partition(" ")[2]


def entries(plan: Plan, model: torch.nn.Module) -> dict[str, dict[str, str]]:
    """Pattern of a module in the model with its head -> name of a state or argument, or ``output`` -> layouts."""
    modules = dict(model.named_modules())
    start = "" if hasattr(model, _HEAD) else "model."
    found: dict[str, dict[str, str]] = {}
    for rule in plan.rules:
        paths = matches(rule.pattern, modules)
        owner, own = (rule.pattern, {}) if paths else (rule.pattern.rpartition(".")[0], {})
        layout = rule.layout
        if layout in _LINEAR:
            own = dict(_LINEAR[layout])
        elif layout == VOCABULARY:
            own = dict(_TABLE)
        elif layout in _OUTPUTS:
            own = {"output": _OUTPUTS[layout]}
        elif layout == ENTERING_INPUTS:
            own = dict.fromkeys(_arguments(modules[paths[0]]), "I, R")
        else:
            state = "R" if layout == SUMMED_GRADIENT else f"S({rule.dim or 0})"
            names = [name for name, _ in modules[paths[0]].named_parameters(recurse=False)] if paths else []
            own = dict.fromkeys(names or [rule.pattern.rpartition(".")[2]], state)
        found.setdefault(f"{start}{owner}".rstrip("."), {}).update(own)
    return {**found, _HEAD: dict(_LINEAR[COLWISE])}


def _arguments(module: torch.nn.Module) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, one in inspect.signature(module.forward).parameters.items() if one.kind in kinds]


def _text(plan: Plan, model: torch.nn.Module) -> str:
    lines = []
    for pattern, given in entries(plan, model).items():
        pairs = (f'"{name}": {f"({one})" if "," in one else one}' for name, one in given.items())
        lines.append(f'    "{pattern}": {{{", ".join(pairs)}}},\n')
    return _TEXT.format(model=plan.model, entries="".join(lines))


def _lacks(plan: Plan, trace: Trace, model: Any) -> str:
    """The reason why torchtitan cannot train the model of the class by its own parts."""
    base = getattr(model, model.base_model_prefix, model)
    parts = {name for name, _ in base.named_children()}
    start = "" if base is model else f"{model.base_model_prefix}."
    if model.base_model_prefix != "model" or not parts >= _PARTS - _NORMS or not parts & _NORMS:
        return "it trains decoders of model.embed_tokens, model.layers, model.norm and model.rotary_emb"
    stateful = {name for name, part in base.named_children() if next(part.parameters(), None) is not None}
    if others := stateful - _PARTS:
        return f"it does not reach {', '.join(sorted(others))}"
    tables = {path for path, module in base.named_modules() if type(module) is torch.nn.Embedding}
    ruled = [rule.pattern.removeprefix(start) for rule in plan.rules if rule.layout == VOCABULARY]
    if whole := tables - {path for pattern in ruled for path in matches(pattern, tables)}:
        return f"it looks up shares of the vocabulary in {min(whole)}, which the plan leaves whole"
    expert = next((path for path, _ in base.named_modules() if path.endswith(".experts")), "")
    return f"it puts layers of its own in the place of {expert}" if expert else ""


TORCHTITAN = Vocabulary(
    name="torchtitan",
    version="0.3.0",
    use="import it and set hf_sharding.set_hf_sharding_configs before torchtitan builds its trainer",
    inexpressible=inexpressible_by(_reasons),
    text=_text,
    lacks=_lacks,
)
