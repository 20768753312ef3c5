"""The proof by the library's own loaders: plans for tensor parallelism, and plans for experts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import one_line
from modular_converter.parallel.plans.emit import to_library, to_torch
from modular_converter.parallel.plans.plan import Plan, is_expert_plan
from modular_converter.parallel.proof.compare import reference, run_model
from modular_converter.parallel.proof.judge import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    WITH_GRADIENTS,
    Evidence,
    Reference,
    Verdict,
    errors_of_backwards,
    proves_nothing,
    refused,
    worst_error,
)
from modular_converter.parallel.tiny.build import Small, copy_of, seed_cpu
from modular_converter.parallel.torch_private import world
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


def check_library(folder: str, small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Load the saved small model with the plan on this rank; compare its outputs and gradients.

    Outputs are compared with and without gradients, because the loader's code differs.

    Args:
        folder: of the saved whole model.
        small: the same model, for its class and inputs.
        plan: a plan in the library's vocabulary.
    """
    if is_expert_plan(plan):
        return check_library_experts(folder, small, plan, ranks, whole)
    own: Any = small.model
    given = dict.fromkeys(own.tp_plan or {}, "replicate")  # sub-models and the loader add entries of their own
    given.update(to_library(plan))
    return _check_loaded(folder, small, given, ranks, whole)


def check_committed(folder: str, small: Small, ranks: int, whole: Reference) -> Verdict:
    """The same with the plan in the model's own classes."""
    return _check_loaded(folder, small, "auto", ranks, whole)


def check_torch(small: Small, plan: Plan, ranks: int, whole: Reference) -> Verdict:
    """Shard a copy of the small model with ``parallelize_module`` on this rank; compare its outputs and gradients.

    Args:
        plan: a plan that torch's styles can express.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    def shard() -> Any:
        model = copy_of(small.model)
        return parallelize_module(model, init_device_mesh("cpu", (ranks,)), to_torch(plan, model))

    return _check("parallelize_module", shard, lambda: copy_of(small.model), small, ranks, whole)


def _check_loaded(folder: str, small: Small, plan: dict[str, str] | str, ranks: int, whole: Reference) -> Verdict:
    from transformers.distributed import DistributedConfig

    model: Any = type(small.model)
    config = DistributedConfig(tp_size=ranks, tp_plan=plan)

    def load(**options: Any) -> Any:
        return model.from_pretrained(folder, **options).eval()

    return _check("transformers' loader", lambda: load(distributed_config=config), load, small, ranks, whole)


def _check(
    through: str, load: Callable[[], Any], plain: Callable[[], Any], small: Small, ranks: int, whole: Reference
) -> Verdict:
    """Compare the model that ``load`` shards with the whole model's numbers, or with those of the ``plain`` model."""
    if reason := proves_nothing(whole):
        return refused(ranks, "the outputs", reason)
    try:
        loaded = load()
        found = [outputs_of(loaded, small, gradients) for gradients in (False, True)]
        worst = max(worst_error(outputs, whole.outputs) for outputs in found)
        if worst > OUTPUT_TOLERANCE:  # loading may change a model, such as its buffers
            alone = outputs_of(plain(), small, gradients=False)
            worst = min(worst, max(worst_error(outputs, alone) for outputs in found))
            whole = reference(plain(), small.inputs)
        if worst > OUTPUT_TOLERANCE:
            return refused(ranks, "the outputs", f"outputs through {through} differ by {worst:.2g}")
        return replace(_with_gradients(through, loaded, small, whole, ranks), output_error=worst)
    except Exception as error:
        return refused(ranks, "", one_line(error, 200))


def _with_gradients(through: str, loaded: Any, small: Small, whole: Reference, ranks: int) -> Verdict:
    """The verdict on the whole gradients of the parameters."""
    scope = Evidence(ranks=(ranks,), places=(through,), forms=(WITH_GRADIENTS,), gaps=whole.gaps)
    if not whole.gradients:
        return Verdict(ranks, 0.0, 0.0, evidence=scope)
    found = run_model(
        loaded, small.inputs, start=whole.start, together=len(whole.gradients) == 1, scales=whole.scales
    ).gradients
    full = [{key: gathered_tensor(gradient) for key, gradient in got.items()} for got in found]
    errors = errors_of_backwards(full, whole.gradients)
    name = max(errors, key=lambda key: errors[key], default="")
    worst = errors.get(name, 0.0)
    if worst <= GRADIENT_TOLERANCE:
        return Verdict(ranks, 0.0, worst, evidence=scope)
    reason = f"the gradient of {name} through {through} differs by {worst:.2g}"
    return Verdict(ranks, 0.0, worst, name, reason, evidence=scope)


def end_groups() -> None:
    """End all process groups but the default group: each load makes new ones, with threads, and never ends them."""
    for group in [group for group in world.pg_map if group is not dist.group.WORLD]:
        dist.destroy_process_group(group)
