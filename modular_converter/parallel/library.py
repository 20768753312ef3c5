"""The same proof through transformers' own loader: ``from_pretrained(distributed_config=DistributedConfig(...))``."""

from __future__ import annotations

import math
from typing import Any

import torch

from modular_converter.parallel.compare import OUTPUT_TOLERANCE, Reference, Verdict, relative_error
from modular_converter.parallel.emit import to_library
from modular_converter.parallel.plan import Plan
from modular_converter.parallel.tiny.build import Small
from modular_converter.parallel.trace import tensors_in


def check_library(folder: str, small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the plan on this rank and compare its outputs, without and with gradients.

    The loader takes another path through its code when gradients are on, so both are run; parameter gradients are
    compared by our own application only.

    Args:
        folder: where the whole small model was saved.
        small: the same model, for its class and inputs.
        plan: a plan in the library's vocabulary.
    """
    from transformers.distributed import DistributedConfig

    given = dict.fromkeys(getattr(small.model.config, "base_model_tp_plan", None) or {}, "replicate")
    given.update(to_library(plan))
    config = DistributedConfig(tp_size=ranks, tp_plan=given)
    model: Any = type(small.model)
    try:
        loaded = model.from_pretrained(folder, distributed_config=config).eval()
        worst = 0.0
        for gradients in (False, True):
            torch.manual_seed(11)
            with torch.set_grad_enabled(gradients):
                outputs = [t for t in tensors_in(loaded(**small.inputs)) if t.is_floating_point()]
            for got, want in zip(outputs, whole.outputs):
                got = got.full_tensor() if hasattr(got, "full_tensor") else got
                worst = max(worst, relative_error(got.detach(), want))
    except Exception as error:
        return Verdict(ranks, math.inf, 0.0, "", f"the library's loader: {type(error).__name__}: {str(error)[:200]}")
    reason = "" if worst <= OUTPUT_TOLERANCE else f"outputs through the library's loader differ by {worst:.2g}"
    return Verdict(ranks, worst, 0.0, "the outputs" if reason else "", reason)
