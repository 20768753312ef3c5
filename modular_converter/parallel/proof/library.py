"""The proof of a plan through transformers' own loader: ``from_pretrained(distributed_config=DistributedConfig(...))``."""

from __future__ import annotations

import math
from typing import Any

import torch.distributed as dist

from modular_converter.parallel.plans.emit import to_library
from modular_converter.parallel.plans.plan import Plan, is_expert_plan
from modular_converter.parallel.proof.experts_library import check_library_experts, outputs_of
from modular_converter.parallel.proof.judge import OUTPUT_TOLERANCE, Reference, Verdict, worst_error
from modular_converter.parallel.tiny.build import Small


def check_library(folder: str, small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the plan on this rank and compare its outputs, without and with gradients.

    The loader takes another path through its code when gradients are on, so both are run; parameter gradients are
    compared by our own application only.

    Args:
        folder: where the whole small model was saved.
        small: the same model, for its class and inputs.
        plan: a plan in the library's vocabulary.
    """
    if is_expert_plan(plan):
        return check_library_experts(folder, small, plan, ranks, whole)
    own: Any = small.model
    given = dict.fromkeys(own.tp_plan or {}, "replicate")  # sub-models and the loader add entries of their own
    given.update(to_library(plan))
    return _check(folder, small, given, ranks, whole)


def check_committed(folder: str, small: Small, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the plan that its own classes carry, and compare its outputs."""
    return _check(folder, small, "auto", ranks, whole)


def _check(folder: str, small: Small, plan: dict[str, str] | str, ranks: int, whole: Reference) -> Verdict:
    from transformers.distributed import DistributedConfig

    model: Any = type(small.model)
    config = DistributedConfig(tp_size=ranks, tp_plan=plan)
    try:
        loaded = model.from_pretrained(folder, distributed_config=config).eval()
        found = [outputs_of(loaded, small, gradients) for gradients in (False, True)]
        worst = max(worst_error(outputs, whole.outputs) for outputs in found)
        if worst > OUTPUT_TOLERANCE:  # loading may change a model: buffers are made anew, for example
            alone = outputs_of(model.from_pretrained(folder).eval(), small, gradients=False)
            worst = min(worst, max(worst_error(outputs, alone) for outputs in found))
    except Exception as error:
        return Verdict(ranks, math.inf, 0.0, "", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    reason = "" if worst <= OUTPUT_TOLERANCE else f"outputs through the library's loader differ by {worst:.2g}"
    return Verdict(ranks, worst, 0.0, "the outputs" if reason else "", reason)


def end_groups() -> None:
    """End all process groups but the default one: each load makes its own, with threads, and never ends them."""
    from torch.distributed.distributed_c10d import _world

    for group in [group for group in _world.pg_map if group is not dist.group.WORLD]:
        dist.destroy_process_group(group)
