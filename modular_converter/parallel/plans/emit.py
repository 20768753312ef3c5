"""Write a plan in other vocabularies: transformers' ``base_model_tp_plan`` and torch's ``parallelize_module``."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.patterns import wildcard
from modular_converter.parallel.plans.plan import Plan


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
