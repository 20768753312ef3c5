"""The vocabulary of DeepSpeed's AutoTP: ``tensor_parallel.partition_config`` of its configuration.

Facts of DeepSpeed 0.19.8 (``module_inject/autotp_config.py``, ``auto_tp.py``), which `utils/train_exports.py` runs:

* A pattern is a regular expression for the beginning of a parameter's name, with ``.weight``.
* Matrices are cut by columns or rows, also in equal packed blocks; a column output may be gathered. Embeddings are cut
  along their width without a gather, so they have no entry here; weights with more dimensions stay whole.
* Modules with cut weights inside have some integers divided by their names, whether the code's arithmetic needs it or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import torch

from modular_converter.parallel.exports.vocabulary import Modules, Vocabulary, unsaid_by
from modular_converter.parallel.plans.emit import of_layers
from modular_converter.parallel.plans.patterns import is_inside, matches
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.trace.graph import Trace


KINDS: dict[str, dict[str, Any]] = {
    "colwise": {"partition_type": "column"},
    "packed_colwise": {"partition_type": "column", "partition_dim": 0},
    "colwise_gather_output": {"partition_type": "column", "gather_output": True},
    "rowwise": {"partition_type": "row"},
    "replicated_with_grad_allreduce": {"partition_type": "skip", "grad_allreduce": True},
}
# The integers that DeepSpeed divides in modules with cut weights.
DIVIDED = frozenset(
    [
        "n_heads",
        "inner_dim",
        "num_heads",
        "num_kv",
        "num_attention_heads",
        "num_attn_heads",
        "all_head_size",
        "embed_dim",
        "hidden_size",
        "num_key_value_heads",
        "num_kv_heads",
        "kv_n_heads",
        "d_model",
        "num_attention_heads_per_partition",
        "num_multi_query_groups_per_partition",
        "hidden_size_per_partition",
    ]
)


def _reasons(rule: PlanRule, modules: Modules) -> Iterator[str]:
    if rule.style not in KINDS or rule.dim is not None or rule.units:
        yield str(rule).partition(" ")[2]
    elif rule.parts and (len(set(rule.parts)) > 1 or len(rule.parts) < 2):
        yield f"packed parts {':'.join(map(str, rule.parts))}"
    elif rule.layout.cuts:
        yield from of_layers(rule, modules, torch.nn.Linear)


def _text(plan: Plan, model: torch.nn.Module) -> str:
    prefix = getattr(model, "base_model_prefix", "")
    start = f"({re.escape(prefix)}\\.)?" if prefix else ""
    modules = [path for path, _ in model.named_modules()]
    specs = []
    for rule in plan.rules:
        end = r"\.weight$" if matches(rule.pattern, modules) else "$"
        if rule.style == "replicated_with_grad_allreduce" and matches(rule.pattern, modules):
            end = r"\."  # all parameters of the module
        pattern = start + re.escape(rule.pattern).replace(r"\*", r"\d+") + end
        shape = {"shape": [len(rule.parts), -1]} if rule.parts else {}
        specs.append({"patterns": [pattern], **KINDS[rule.style], **shape})
    config = {"autotp_size": 2, "partition_config": {"use_default_specs": False, "layer_specs": specs}}
    return json.dumps({"tensor_parallel": config}, indent=4) + "\n"


def _lacks(plan: Plan, trace: Trace, model: torch.nn.Module) -> str:
    """The first integer that DeepSpeed would divide though the model's code needs it whole."""
    resolution = resolve(plan, model)
    cut = [name for name, piece in resolution.pieces.items() if piece.dim >= 0]
    read = {leaf for call in trace.calls for integer in call.integers for leaf in integer.leaves()}
    for source in sorted(read, key=lambda leaf: (leaf.owner, leaf.name)):
        whole = source.name in DIVIDED and (source.owner, source.name) not in resolution.attributes
        if whole and any(is_inside(name, source.owner) for name in cut):
            return f"{source.owner}.{source.name} is read by the model's code, and DeepSpeed divides it"
    return ""


DEEPSPEED = Vocabulary(
    name="deepspeed",
    version="0.19.8",
    use="the configuration of deepspeed.initialize; set autotp_size to the number of devices",
    unsaid=unsaid_by(_reasons, DIVIDED),
    text=_text,
    lacks=_lacks,
)
