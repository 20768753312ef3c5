"""Checks before a process starts: devices, the device of the weights, the plan's text and its fit."""

from __future__ import annotations

import torch

from modular_converter.parallel.choice.fit import fit
from modular_converter.parallel.choice.skeleton import Skeleton
from modular_converter.parallel.errors import ApplyError, PlanFormatError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece


def devices_for(number: int, device: str | None) -> tuple[str, ...]:
    """The device name of each rank.

    Args:
        device: ``cpu`` or ``cuda``; if None, GPUs if there are any.

    Raises ``ApplyError`` if there are too few GPUs, or ``number`` is less than 1.
    """
    if number < 1:
        raise ApplyError(f"num_gpus={number}: at least one device is needed")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device or ("cuda" if found else "cpu")) == "cpu":
        return ("cpu",) * number
    if number > found:
        raise ApplyError(f"num_gpus={number}, but this machine has {found}; the largest number that works is {found}")
    return tuple(f"cuda:{n}" for n in range(number))


def check_home(model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` unless all weights are on the CPU."""
    places = sorted({tensor.device.type for tensor in (*model.parameters(), *model.buffers())} - {"cpu"})
    if "meta" in places:
        raise ApplyError("the model has no weights (meta device); load them first, or was it parallelized before?")
    if places:
        raise ApplyError(f"the model is on {places[0]} already; call parallelize first, or move it back with .cpu()")


def check_text(plan: Plan) -> None:
    """Raise ``ApplyError`` unless the plan's text, which is sent to the ranks, is a plan."""
    try:
        Plan.parse(str(plan))
    except (PlanFormatError, ValueError) as error:
        raise ApplyError(f"the plan cannot be sent to other processes as text: {error}") from error


def check_fit(skeleton: Skeleton, plan: Plan, size: int) -> tuple[Plan, dict[int, Piece]]:
    """The plan as it fits, and the split of each item, by number.

    Raises ``ApplyError`` if the plan does not fit the model on ``size`` ranks.
    """
    found = fit(skeleton, plan, size)
    named = enumerate(skeleton.items)
    return found.plan, {n: found.pieces[i.name] for n, i in named if i.parameter and i.name in found.pieces}
