"""Prove an expert-parallel plan through transformers' own loader, with each of its exchanges of tokens."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch

from modular_converter.parallel.plans.emit import to_library
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.deviation import worst_error
from modular_converter.parallel.proof.judge import OUTPUT_TOLERANCE, Reference, Verdict, proves_nothing, refused
from modular_converter.parallel.tiny.build import Small
from modular_converter.parallel.tiny.copies import seed_cpu
from modular_converter.parallel.trace.record import tensors_in
from modular_converter.parallel.trace.unchanged import shared_state


# ``auto``, the default, is an all-reduce without gradients, and an all-to-all with gradients.
IMPLEMENTATIONS = ("auto", "all_reduce", "all_to_all")


def check_library_experts(folder: str, small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the plan on this rank and compare its outputs, without and with gradients.

    Args:
        folder: of the saved whole model.
        small: the same model, for its class and inputs.
        plan: an expert-parallel plan in the library's vocabulary.
    """
    from transformers.distributed import DistributedConfig

    if reason := proves_nothing(whole):
        return refused(ranks, "the outputs", reason)
    model: Any = small.model
    given = dict.fromkeys(model.ep_plan or {}, "replicate")
    given.update(to_library(plan))
    # transformers 5.23.0 refuses ``tp_plan={}`` beside ``tp_size``, which its documentation gives for experts only.
    first = next(name for name, _ in model.named_children())
    dense = dict.fromkeys(model.tp_plan or (first,), "replicate")
    worst = 0.0
    for name in IMPLEMENTATIONS:
        config = DistributedConfig(tp_size=ranks, tp_plan=dense, ep_size=ranks, ep_plan=given, ep_implementation=name)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loaded = type(model).from_pretrained(folder, distributed_config=config).eval()
            for gradients in (False, True):
                error = worst_error(outputs_of(loaded, small, gradients), whole.outputs)
                worst = max(worst, error)
                if not error <= OUTPUT_TOLERANCE:
                    said = f"ep_implementation={name!r}, {'with' if gradients else 'without'} gradients"
                    return Verdict(ranks, worst, 0.0, "the outputs", f"through {said} they differ by {error:.2g}")
        except Exception as error:
            reason = f"the library's loader, ep_implementation={name!r}: {type(error).__name__}: {str(error)[:200]}"
            return Verdict(ranks, math.inf, 0.0, "", reason)
    return Verdict(ranks, worst, 0.0)


def outputs_of(model: Any, small: Small, gradients: bool) -> list[torch.Tensor]:
    """The whole outputs of a model that the library has loaded.

    The state of its classes and files is restored, since the next run may be of the whole model.
    """
    seed_cpu(11)
    before = shared_state(small.model)
    with torch.set_grad_enabled(gradients):
        outputs = tensors_in(model(**small.inputs))
    before.give_back()
    return [gathered_tensor(tensor).detach() for tensor in outputs]


def gathered_tensor(tensor: Any) -> torch.Tensor:
    """The whole tensor of a tensor that may be distributed."""
    found: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found
