"""Plans for the loaders of transformers, accelerate and torch, and for DeepSpeed's AutoTP.

DeepSpeed's is ``tensor_parallel.partition_config`` of its configuration. Facts of DeepSpeed 0.19.8
(``module_inject/autotp_config.py``, ``auto_tp.py``), which `utils/train_exports.py` runs:

* A pattern is a regular expression for the beginning of a parameter's name, with ``.weight``. * Matrices are cut by
columns or rows, also in equal packed blocks; a column output may be gathered. Embeddings are cut along their width
without a gather, so they have no entry here; weights with more dimensions stay whole. * Modules with cut weights inside
have some integers divided by their names, whether the code's arithmetic needs it or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.exports.restrict import Modules, Vocabulary, inexpressible_by
from modular_converter.parallel.plans.emit import (
    Inexpressible,
    inexpressible_for_library,
    inexpressible_for_torch,
    of_layers,
    refused_by_loader,
    to_library,
    torch_text,
)
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.plans.text_checks import is_inside, matches
from modular_converter.parallel.trace.graph import Trace


def library_entries(plan: Plan, model: Any) -> dict[str, str]:
    """A plan for ``DistributedConfig(tp_plan=…)``: entries of the model's own plan without a rule become ``replicate``.

    Raises ``PlanFormatError`` with the rules that this vocabulary cannot express.
    """
    return {**dict.fromkeys(getattr(model, "tp_plan", None) or {}, "replicate"), **to_library(plan, model)}


def _inexpressible(plan: Plan, model: torch.nn.Module) -> list[Inexpressible]:
    return [*inexpressible_for_library(plan, model), *refused_by_loader(plan, model)]


def _library_text(plan: Plan, model: torch.nn.Module) -> str:
    return json.dumps(library_entries(plan, model), indent=4) + "\n"


_ACCELERATE = """\
from accelerate import Accelerator
from accelerate.parallelism_config import ParallelismConfig
from transformers import AutoModel
from transformers.distributed import DistributedConfig


tp_plan = {entries}


def prepared(folder, tp_size, auto=AutoModel):
    \"\"\"The accelerator, and the model of a folder, sharded over ``tp_size`` processes.\"\"\"
    accelerator = Accelerator(parallelism_config=ParallelismConfig(tp_size=tp_size))
    config = DistributedConfig(tp_size=tp_size, tp_plan=tp_plan)
    return accelerator, accelerator.prepare(auto.from_pretrained(folder, distributed_config=config))
"""


def _accelerate_text(plan: Plan, model: torch.nn.Module) -> str:
    return _ACCELERATE.format(entries=json.dumps(library_entries(plan, model), indent=4))


TRANSFORMERS = Vocabulary(
    name="transformers",
    version="5.24.0",
    use="from_pretrained(..., distributed_config=DistributedConfig(tp_size=N, tp_plan=...)), or base_model_tp_plan",
    inexpressible=_inexpressible,
    text=_library_text,
    route="library",
)
ACCELERATE = replace(
    TRANSFORMERS,
    name="accelerate",
    version="1.15.0",
    use="prepared(folder, tp_size) in a script that `accelerate launch` starts; accelerate refuses tensor parallelism on CPUs",
    text=_accelerate_text,
)
TORCH = Vocabulary(
    name="torch",
    version="2.13.0",
    use="torch.distributed.tensor.parallel.parallelize_module(model, mesh, parallelize_plan)",
    inexpressible=inexpressible_for_torch,
    text=torch_text,
    route="torch",
)


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
            end = r"\.[^.]+$"  # all its own parameters
        pattern = start + re.escape(rule.pattern).replace(r"\*", r"\d+") + end
        shape = {"shape": [len(rule.parts), -1]} if rule.parts else {}
        specs.append({"patterns": [pattern], **KINDS[rule.style], **shape})
    config = {"autotp_size": 2, "partition_config": {"use_default_specs": False, "layer_specs": specs}}
    return json.dumps({"tensor_parallel": config}, indent=4) + "\n"


def _misdivided(plan: Plan, trace: Trace, model: torch.nn.Module) -> str:
    """The first integer that DeepSpeed would divide though the model's code needs it whole."""
    resolution = resolve(plan, model)
    cut = [name for name, piece in resolution.pieces.items() if piece.dim >= 0]
    read = {leaf for call in trace.calls for integer in call.integers for leaf in integer.leaves()}
    for source in sorted(read, key=lambda leaf: (leaf.owner, leaf.name)):
        whole = source.name in DIVIDED and (source.owner, source.name) not in resolution.attributes
        if whole and any(is_inside(name, source.owner) for name in cut):
            return f"{source.owner}.{source.name} is read by the model's code, and DeepSpeed divides it"
    return ""


def _lacks(plan: Plan, trace: Trace, model: Any) -> str:
    """Whether DeepSpeed, which looks for the head by its input embeddings, finds these."""
    try:
        getattr(model, "get_input_embeddings", bool)()
    except NotImplementedError:
        return "DeepSpeed asks for the input embeddings of the model, which its class does not tell"
    return ""


DEEPSPEED = Vocabulary(
    name="deepspeed",
    version="0.19.8",
    use="the configuration of deepspeed.initialize; set autotp_size to the number of devices",
    inexpressible=inexpressible_by(_reasons, DIVIDED),
    text=_text,
    lacks=_lacks,
    misruns=_misdivided,
)
