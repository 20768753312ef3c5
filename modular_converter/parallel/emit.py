"""Write a plan in other vocabularies: transformers' ``base_model_tp_plan`` and torch's ``parallelize_module``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modular_converter.parallel.derive import ALL_RULES
from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.flow import Flow, follow
from modular_converter.parallel.graph import Trace
from modular_converter.parallel.parts import parts_of
from modular_converter.parallel.plan import Plan, wildcard
from modular_converter.parallel.resolve import matches
from modular_converter.parallel.rules_compute import pointwise


def to_library(plan: Plan) -> dict[str, str]:
    """``{layer pattern: style}`` in the names of transformers 5.23, numbers all ``*``.

    Raises:
        PlanFormatError: the plan needs what that vocabulary cannot say; each such rule is named.
    """
    reasons = plan.library_reasons()
    if reasons:
        raise PlanFormatError(f"{plan.model}: not in transformers' vocabulary: " + "; ".join(reasons))
    result: dict[str, str] = {}
    for rule in plan.rules:
        pattern = wildcard(rule.pattern)
        if result.setdefault(pattern, rule.style) != rule.style:
            raise PlanFormatError(f"{pattern}: its members need different styles, numbers cannot be told apart there")
    return result


# What has nothing to say here: a rule switched off, and the owner of parameters that have rules of their own.
_SILENT = {"replicate", "local_params"}


def from_library(model: str, rules: Mapping[str, str], trace: Trace | None = None) -> Plan:
    """A plan from a ``base_model_tp_plan``; packed styles have two equal parts there.

    Args:
        model: what the plan is of.
        rules: layer pattern -> style.
        trace: of the model; it tells where the output of an ``mla_kv_a_proj`` layer is cut, which the style leaves out.

    Raises:
        PlanFormatError: a style that this wing does not know, or one that needs the trace.
    """
    flow = follow(trace, ALL_RULES, pointwise) if trace is not None and "mla_kv_a_proj" in rules.values() else None
    lines = [f"plan {model}"]
    for pattern, style in rules.items():
        parts = " parts=1:1" if style.startswith("packed_") else ""
        if style == "mla_kv_a_proj":
            parts = f" parts={_cut_of_output(flow, pattern)}"
        if style not in _SILENT:
            lines.append(f"rule {pattern} {style}{parts}")
    return Plan.parse("\n".join(lines))


def _cut_of_output(flow: Flow | None, pattern: str) -> str:
    """The parts of what a module gives, as far as the code behind it cuts it in two."""
    calls = () if flow is None else flow.trace.modules
    outputs = [number for call in calls if matches(pattern, [call.path]) for number in call.outputs]
    for number in outputs:
        assert flow is not None
        cuts = [op for op in flow.trace.ops if op.name.startswith("split") and number in op.inputs()]
        for op in cuts:
            lengths = [flow.shape(out)[-1] for out in op.outputs]
            return ":".join(map(str, parts_of(flow, flow.of(number)[-1], lengths)))
    raise PlanFormatError(f"{pattern}: where its output is cut is not known; a trace of the model tells")


def to_torch(plan: Plan) -> dict[str, Any]:
    """Styles for ``torch.distributed.tensor.parallel.parallelize_module``.

    Raises:
        PlanFormatError: a rule that torch's styles cannot say; it is named.
    """
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    made: dict[str, Any] = {
        "colwise": lambda: ColwiseParallel(),
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
        "rowwise": lambda: RowwiseParallel(),
        "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
        "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    }
    unknown = [str(rule) for rule in plan.rules if rule.style not in made or rule.dim is not None or rule.parts]
    if unknown or plan.attributes:
        raise PlanFormatError(f"{plan.model}: torch has no style for " + "; ".join([*unknown, *plan.attributes]))
    return {rule.pattern: made[rule.style]() for rule in plan.rules}
