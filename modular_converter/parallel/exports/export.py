"""Export a plan to a tool: reduced to what the tool says, proven again, and run by the tool's own code.

Some engines run norms on the gathered shares of their input, of whose output each device keeps its share. From outside,
such a norm takes shares to shares, as a function of single entries does: a plan is right with the norm if, and only if,
it is right with an entrywise function in its place, in which the plan is derived and proven.

Here are also the forms of the loaders of transformers, accelerate and torch, and of DeepSpeed's AutoTP. DeepSpeed's is
``tensor_parallel.partition_config`` of its configuration. Facts of DeepSpeed 0.19.8 (``module_inject/autotp_config.py``,
``auto_tp.py``), which `utils/train_exports.py` runs:

* A pattern is a regular expression for the beginning of a parameter's name, with ``.weight``.
* Matrices are cut by columns or rows, also in equal packed blocks; a column output may be gathered. Embeddings are cut
  along their width without a gather, so they have no entry here; weights with more dimensions stay whole.
* Modules with cut weights inside have some integers divided by their names, whether the code's arithmetic needs it or not.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.exports.restrict import Modules, Restricted, Vocabulary, inexpressible_by, kept_of
from modular_converter.parallel.exports.serving import SGLANG, VLLM
from modular_converter.parallel.exports.torchtitan import TORCHTITAN
from modular_converter.parallel.plans.emit import (
    inexpressible_for_library,
    inexpressible_for_torch,
    of_layers,
    refused_by_loader,
    to_library,
    torch_text,
)
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import fitting, resolve
from modular_converter.parallel.plans.text_checks import is_inside, matches, placed, wildcard
from modular_converter.parallel.proof.on_ranks import RankPool
from modular_converter.parallel.proof.prove import Derived, HeadVariant, derived_from, prove
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.shard.shares import largest_share
from modular_converter.parallel.solve.cost import calls
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.tables.summary import full_model
from modular_converter.parallel.tiny.build import Small, copy_of
from modular_converter.parallel.trace.graph import Trace


def library_entries(plan: Plan, model: Any) -> dict[str, str]:
    """A plan for ``DistributedConfig(tp_plan=…)``: entries of the model's own plan without a rule become ``replicate``.

    Raises ``PlanFormatError`` with the rules that this vocabulary cannot express.
    """
    return {**dict.fromkeys(getattr(model, "tp_plan", None) or {}, "replicate"), **to_library(plan, model)}


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


TRANSFORMERS = Vocabulary(
    name="transformers",
    version="5.24.0",
    use="from_pretrained(..., distributed_config=DistributedConfig(tp_size=N, tp_plan=...)), or base_model_tp_plan",
    inexpressible=lambda plan, model: [*inexpressible_for_library(plan, model), *refused_by_loader(plan, model)],
    text=lambda plan, model: json.dumps(library_entries(plan, model), indent=4) + "\n",
    route="library",
)
ACCELERATE = replace(
    TRANSFORMERS,
    name="accelerate",
    version="1.15.0",
    use="prepared(folder, tp_size) in a script that `accelerate launch` starts; accelerate refuses tensor parallelism on CPUs",
    text=lambda plan, model: _ACCELERATE.format(entries=json.dumps(library_entries(plan, model), indent=4)),
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


class Entrywise(torch.nn.Module):
    """Stands for a norm over shares that are gathered."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The same shape; an odd function that does not grow."""
        return torch.tanh(hidden_states)


def with_gathered_norms(derived: Derived) -> Derived | None:
    """The model with entrywise functions for its norms over a projection, and its plan; None without such norms."""
    paths = list(norms_of_projections(derived.small.model))
    if not paths:
        return None
    small = _without(derived.small, paths)
    found = derived_from(
        derived.target, small, subject_of(small.model, small.inputs), derived.verdict.ranks, dict(derived.overrides)
    )
    variants = []
    for variant in derived.variants:
        other = _without(variant.small, paths)
        variants.append(HeadVariant(other, subject_of(other.model, other.inputs, second=False), variant.ratio))
    return replace(found, variants=tuple(variants))


def gathers(model: torch.nn.Module) -> int:
    """The norms in a model that gather."""
    return sum(isinstance(module, Entrywise) for module in model.modules())


def _without(small: Small, paths: list[str]) -> Small:
    model = copy_of(small.model)
    for path in paths:
        owner, _, name = path.rpartition(".")
        setattr(model.get_submodule(owner), name, Entrywise())
    return replace(small, model=model)


def norms_of_projections(model: torch.nn.Module) -> Iterator[str]:
    """The paths of root mean square norms over all features that a linear layer beside them gives or takes."""
    for path, module in model.named_modules():
        linear = [child for child in module.children() if isinstance(child, torch.nn.Linear)]
        widths = {width for layer in linear for width in (layer.in_features, layer.out_features)}
        for name, child in module.named_children():
            weight = getattr(child, "weight", None)
            if linear and is_rms_norm(child) and isinstance(weight, torch.Tensor) and weight.numel() in widths:
                yield f"{path}.{name}".lstrip(".")


def is_rms_norm(module: torch.nn.Module) -> bool:
    """Whether a module divides by the root of the mean square, with a factor for each feature."""
    weight = getattr(module, "weight", None)
    if next(module.children(), None) is not None or not isinstance(weight, torch.nn.Parameter) or weight.dim() != 1:
        return False
    if len(inspect.signature(module.forward).parameters) != 1:  # a gate or a residual beside the entries
        return False
    entries = 1e3 * torch.linspace(-1, 2, 3 * weight.numel(), dtype=weight.dtype).reshape(
        3, -1
    )  # eps is nothing beside it
    want = entries * entries.square().mean(-1, keepdim=True).rsqrt()
    try:
        with torch.no_grad():
            found = module(entries)
    except Exception:  # a module with other inputs
        return False
    return any(torch.allclose(found, want * factor, rtol=1e-3, atol=1e-5) for factor in (weight, 1 + weight))


@dataclass(frozen=True)
class Memory:
    """Bytes of 16-bit weights: of the whole model, and of the largest share of a device under both plans.

    Attributes:
        sizes: what was measured: the default sizes of the model's classes, or the small instance.
    """

    whole: int
    full: int
    exported: int
    sizes: str


@dataclass(frozen=True)
class Export:
    """A plan for another tool.

    Attributes:
        plan: the part of the derived plan that the tool follows.
        lost: pattern of a parameter that only the derived plan shards -> the reason.
        collectives: of one forward of the small instance, under this plan and under the derived plan.
        proven: how the tool's own code ran it; empty if it did not run here.
    """

    vocabulary: Vocabulary
    plan: Plan
    text: str
    lost: dict[str, str]
    memory: Memory
    collectives: tuple[int, int]
    proven: str = ""


def export(derived: Derived, vocabulary: Vocabulary, ranks: int = 2, pool: RankPool | None = None) -> Export:
    """The part of a derived plan that a tool can say, and that runs here.

    Args:
        ranks: devices, for the memory.
        pool: for runs through the tool's own code, if it has a route; None to skip them.

    Raises ``PlanError`` if nothing of the plan can be handed over, with the reasons, or if a rank would hold nothing of an
    axis of the small instance, as ``modular-plan show`` does.
    """
    bytes_on_device(derived.small.model, derived.plan, ranks)
    instance, kept, lacks = _part(derived, vocabulary, pool)
    if lacks and vocabulary.gathers_norms and (other := with_gathered_norms(derived)) is not None:
        gathered = _part(other, vocabulary, pool)
        instance, kept, lacks = (instance, kept, lacks) if gathered[-1] else gathered
    if lacks:
        raise PlanError(f"{derived.plan.model}: {vocabulary.name} cannot run it: {lacks}")
    lost = {wildcard(name): reason for name, reason in sorted(kept.lost.items())}
    if not kept.plan.rules:
        reasons = "; ".join(f"{pattern}: {reason}" for pattern, reason in lost.items())
        raise PlanError(
            f"{derived.plan.model}: nothing to export to {vocabulary.name}: {reasons or 'the plan is empty'}"
        )
    proven = f"{pool.size} processes" if pool is not None and vocabulary.route else ""
    model = instance.small.model
    own = calls(follow(instance.trace), kept.plan) + gathers(model)
    counts = own, calls(follow(derived.trace), derived.plan)
    text = vocabulary.text(kept.plan, model)
    return Export(vocabulary, kept.plan, text, lost, memory(derived, kept.plan, ranks), counts, proven)


def _part(derived: Derived, vocabulary: Vocabulary, pool: RankPool | None) -> tuple[Derived, Restricted, str]:
    """The part of a plan that a tool can say and runs, and the reason why it cannot run the model with it, if there is."""
    model = derived.small.model
    if lacks := vocabulary.lacks(derived.plan, derived.trace, model):  # which no part of the plan would cure
        return derived, Restricted(Plan(derived.plan.model)), lacks

    def refusal(plan: Plan) -> str:
        verdict = derived.checked(plan, 2) if plan is not derived.plan else derived.verdict
        if not verdict.passed:
            return placed(verdict.layer, verdict.reason)
        why = misread(vocabulary, plan, model) or vocabulary.misruns(plan, derived.trace, model)
        if why or pool is None or not vocabulary.route:
            return why
        return _refused_there(derived, plan, pool, vocabulary)

    kept = kept_of(derived.trace, derived.plan, lambda plan: vocabulary.inexpressible(plan, model), refusal)
    return derived, kept, vocabulary.lacks(kept.plan, derived.trace, model)


def _refused_there(derived: Derived, plan: Plan, pool: RankPool, vocabulary: Vocabulary) -> str:
    why = ""
    for _ in range(2):  # a busy machine may be too slow for the limit of time once
        try:
            verdict = prove(derived, plan, pool, vocabulary.route)
        except PlanError as error:  # a rank died or hung in the tool's code
            why = str(error)
        else:
            return "" if verdict.passed else placed(verdict.layer, verdict.reason)
    return why


def misread(vocabulary: Vocabulary, plan: Plan, model: torch.nn.Module) -> str:
    """The first layer that a tool reads otherwise than the plan has it; empty if there is none."""
    if vocabulary.read is None:
        return ""
    wanted, read = vocabulary.styles(plan, model), vocabulary.read(vocabulary.text(plan, model), model)
    other = next((path for path in sorted({*wanted, *read}) if wanted.get(path) != read.get(path)), None)
    return "" if other is None else f"{other}: read as {read.get(other, 'whole')}, not {wanted.get(other, 'whole')}"


def memory(derived: Derived, plan: Plan, ranks: int) -> Memory:
    """The bytes on a device at the default sizes of the model's classes, or of the small instance if these fail."""

    def measured(model: torch.nn.Module, sizes: str) -> Memory:
        whole = 2 * sum(parameter.numel() for parameter in model.parameters())
        full, own = (bytes_on_device(model, one, ranks) for one in (derived.plan, plan))
        return Memory(whole, full, own, sizes)

    try:
        return measured(full_model(derived.small.model), "default sizes")
    except Exception:  # defaults that do not fit together, or to the plan
        return measured(derived.small.model, "small instance")


def bytes_on_device(model: torch.nn.Module, plan: Plan, ranks: int) -> int:
    """The bytes of the largest share of 16-bit weights. Raises ``PlanError`` if the plan does not fit."""
    pieces = resolve(fitting(plan, model), model).pieces
    return 2 * sum(
        prod(largest_share(tuple(p.shape), pieces.get(name), ranks)) for name, p in model.named_parameters()
    )


_ALL = (TRANSFORMERS, ACCELERATE, TORCH, VLLM, SGLANG, TORCHTITAN, DEEPSPEED)
TOOLS: dict[str, Vocabulary] = {tool.name: tool for tool in _ALL}
