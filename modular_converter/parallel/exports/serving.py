"""The vocabularies of vLLM and SGLang, which run a model's transformers code with linear layers of their own.

Facts of vLLM 0.33.0 (``vllm/model_executor/models/transformers/base.py`` and ``utils.py``) and SGLang 0.5.23
(``sglang/srt/models/transformers.py``), which `utils/check_exports.py` compares with the installed packages:

* A pattern is a regular expression that matches the beginning of the path of an ``nn.Linear``; the first that matches
  gives its style, and layers without one are whole.
* Tables of the vocabulary, the head and stacked experts are sharded by the engine itself, without a rule.
* Each device runs heads / devices of each attention that looks its function up, so these must be sharded by heads. vLLM
  reads the heads of each layer of a configuration that differs by layer; SGLang gives all layers the same.
* vLLM gives each device its own entries of the parameter that an attention hands over as ``s_aux``, a sink for each head.
  SGLang drops it, so no model with sinks can run there.
* vLLM gathers the shares that a root mean square norm takes if they are narrower than its weight, and gives each device its
  share of the result. SGLang would take the mean of a share.
* There are no gradients, so rules for gradients are left out.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.exports.restrict import Modules, Shards, Vocabulary, inexpressible_by
from modular_converter.parallel.plans.emit import of_layers
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import is_inside, matches
from modular_converter.parallel.trace.graph import Trace


VLLM_STYLES = {name: name for name in ("colwise", "rowwise", "colwise_gather_output", "rowwise_split_input")}
SGLANG_STYLES = {
    "colwise": "colwise",
    "rowwise": "rowwise",
    "colwise_gather_output": "colwise_rep",
    "rowwise_split_input": "rowwise_rep",
}
_ATTENTION = ("scaled_dot_product", "softmax")
_INTERFACE = "ALL_ATTENTION_FUNCTIONS"
_SINKS = "s_aux"
_SHARD = "shard"
_EXPERTS = re.compile(r"(^|\.)experts(\.|$)")


@dataclass(frozen=True)
class Engine:
    """What an engine does with a model of transformers.

    Attributes:
        styles: our style -> the engine's name.
        deals_sinks: whether each device gets its own of the sinks.
        sizes_layers: whether the heads of each layer are those of a configuration that differs by layer.
    """

    styles: Mapping[str, str]
    deals_sinks: bool = False
    sizes_layers: bool = False


def _reasons(engine: Engine, rule: PlanRule, modules: Modules) -> Iterator[str]:
    theirs = rule.layout.of_table or _EXPERTS.search(rule.pattern)
    if not _acts(rule) or theirs or engine.deals_sinks and _cuts_sinks(rule, modules[""]):
        return
    if rule.style not in engine.styles or not rule.is_plain:
        yield str(rule).partition(" ")[2]
    else:
        yield from of_layers(rule, modules, torch.nn.Linear)


def _cuts_sinks(rule: PlanRule, model: torch.nn.Module) -> bool:
    """Whether a rule cuts parameters that attentions hand over as sinks, one for each head."""
    names = matches(rule.pattern, dict(model.named_parameters()))
    places = [name.rpartition(".") for name in names]
    is_cut = rule.style == _SHARD and rule.dim == 0
    return is_cut and bool(names) and all(_sinks(type(model.get_submodule(owner))) == own for owner, _, own in places)


def _sinks(attention: type[torch.nn.Module]) -> str:
    """The attribute that the forward of a class hands over as sinks; empty for none."""
    calls = [
        node for node in ast.walk(_code_of(attention.forward)) if isinstance(node, ast.keyword) and node.arg == _SINKS
    ]
    value = calls[0].value if len(calls) == 1 else None
    return value.attr if isinstance(value, ast.Attribute) and ast.unparse(value.value) == "self" else ""


def _is_replaced(attention: type[torch.nn.Module]) -> bool:
    """Whether the forward of a class looks up the function that an engine replaces."""
    return any(isinstance(node, ast.Name) and node.id == _INTERFACE for node in ast.walk(_code_of(attention.forward)))


@functools.cache
def _code_of(forward: Callable[..., Any]) -> ast.AST:
    """The code of a forward; empty for one without a source."""
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(forward))))
    except (OSError, TypeError, SyntaxError):
        return ast.Module([], [])


def _acts(rule: PlanRule) -> bool:
    """Whether a rule does something without gradients."""
    return rule.layout.cuts or rule.layout.leaves is not None


def _styles(plan: Plan, model: torch.nn.Module) -> dict[str, str]:
    """Path of a linear layer -> the style that the plan gives it."""
    layers = _layers(model)
    return {path: rule.style for rule in plan.rules if _acts(rule) for path in matches(rule.pattern, layers)}


def _layers(model: torch.nn.Module) -> list[str]:
    """The paths of linear layers outside of experts."""
    found = (path for path, module in model.named_modules() if isinstance(module, torch.nn.Linear))
    return [path for path in found if not _EXPERTS.search(path)]


def _text(engine: Engine, plan: Plan, model: torch.nn.Module) -> str:
    """The entries with ``*``, or with exact expressions if ``*`` would match more than the number of a layer."""
    layers = _layers(model)
    rules = {
        rule.pattern: engine.styles[rule.style] for rule in plan.rules if _acts(rule) and matches(rule.pattern, layers)
    }
    text = json.dumps({"base_model_tp_plan": rules}, indent=4) + "\n"
    if _read(engine, text, model) == _styles(plan, model):
        return text
    exact = {re.escape(pattern).replace(r"\*", r"\d+") + "$": style for pattern, style in rules.items()}
    return json.dumps({"base_model_tp_plan": exact}, indent=4) + "\n"


def _read(engine: Engine, text: str, model: torch.nn.Module) -> dict[str, str]:
    """Path of a linear layer -> our style, as the engine matches the entries and those of the model's parts."""
    entries: dict[str, str] = dict(json.loads(text)["base_model_tp_plan"])
    for name, child in model.named_children():
        for pattern, style in (getattr(child, "tp_plan", None) or {}).items():
            entries.setdefault(f"{name}.{pattern}", style)
    ours = {theirs: name for name, theirs in engine.styles.items()}
    found = {}
    for path in _layers(model):
        style = next(
            (style for pattern, style in entries.items() if re.match(f"model.{pattern}", f"model.{path}")), ""
        )
        if style in ours:
            found[path] = ours[style]
    return found


def _lacks(engine: Engine, plan: Plan, trace: Trace, model: Any) -> str:
    """The reason why no tensor-parallel run is possible: attention that is not sharded by heads, or not replaceable."""
    if not getattr(model, "_supports_attention_backend", False):
        return "transformers does not let an engine replace this model's attention"
    shards = Shards.of(trace, plan)
    decoder = _path_of_decoder(model)
    paths = [path for path, module in model.named_modules() if is_inside(path, decoder) and _is_replaced(type(module))]
    inside = [op for op in trace.ops if any(is_inside(op.module, path) for path in paths)]
    calls = [op for op in inside if any(name in op.name for name in _ATTENTION)]
    heads_of = {trace.tensors[op.inputs()[1]].shape[-3::2]: op.module for op in calls if _ATTENTION[0] in op.name}
    configs = (model.config, model.config.get_text_config())
    differs_by_layer = any(getattr(one, "is_heterogeneous", False) for one in configs)
    if len(heads_of) > 1 and not (engine.sizes_layers and differs_by_layer):
        return f"{' and '.join(heads_of.values())} have key heads of different number or size, the engine gives all the same"
    if not any(len(shards.flow.of(op.inputs()[0])) > 2 for op in calls):
        return "the trace has no attention to share out by heads"
    for op in calls:  # the last two axes are positions and features
        outer = shards.flow.of(op.inputs()[0])[:-2]
        heads = {atom.number for seq in outer for atom in shards.flow.axes.leaves(seq)}
        if outer and not heads & shards.leaves:
            return f"{op.module}: its attention is not sharded by heads, of which the engine gives each device a share"
    return ""


def _path_of_decoder(model: Any) -> str:
    """The path of the part whose attention the engine replaces; encoders of images keep theirs."""
    decoder = model.get_decoder()
    return next((path for path, module in model.named_modules() if module is decoder), "")


def _vocabulary(name: str, version: str, use: str, engine: Engine, *, gathers_norms: bool = False) -> Vocabulary:
    return Vocabulary(
        name=name,
        version=version,
        use=use,
        inexpressible=inexpressible_by(functools.partial(_reasons, engine)),
        text=functools.partial(_text, engine),
        read=functools.partial(_read, engine),
        styles=_styles,
        gathers_norms=gathers_norms,
        lacks=functools.partial(_lacks, engine),
    )


VLLM = _vocabulary(
    "vllm",
    "0.33.0",
    "vllm serve MODEL --model-impl transformers --hf-overrides '…'",
    Engine(VLLM_STYLES, deals_sinks=True, sizes_layers=True),
    gathers_norms=True,
)
SGLANG = _vocabulary(
    "sglang",
    "0.5.23",
    "python -m sglang.launch_server --model-impl transformers --json-model-override-args '…'",
    Engine(SGLANG_STYLES),
)
