"""Checks before a process starts: the devices, the plan's fit, and the largest number of ranks that works.

A rank's model is put together on the meta device, sharded for that many ranks, and run once without data.
"""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.engine.base.skeleton import Skeleton, assemble_model
from modular_converter.parallel.engine.base.without_data import META, run_without_data
from modular_converter.parallel.errors import ApplyError, PlanFormatError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.shares import is_uneven
from modular_converter.parallel.tiny.inputs import make_inputs


class OneOf:
    """One of several ranks that do not exist, the first by default: its collectives give results of the right shapes."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor] * self.size


def devices_for(number: int, device: str | None) -> tuple[str, ...]:
    """One device name a rank.

    Args:
        device: ``cpu`` or ``cuda``; GPUs where there are some if None.

    Raises:
        ApplyError: there are fewer, or none.
    """
    if number < 1:
        raise ApplyError(f"num_gpus={number}: at least one device is needed")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    kind = device or ("cuda" if found else "cpu")
    if kind not in ("cpu", "cuda"):
        raise ApplyError(f"device={device!r}: give 'cpu' or 'cuda'")
    if kind == "cpu":
        return ("cpu",) * number
    if number > found:
        raise ApplyError(f"num_gpus={number}, but this machine has {found}; the largest number that works is {found}")
    return tuple(f"cuda:{n}" for n in range(number))


def check_home(model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` unless all weights lie in the main process's memory."""
    places = sorted({tensor.device.type for tensor in (*model.parameters(), *model.buffers())} - {"cpu"})
    if "meta" in places:
        raise ApplyError("the model has no weights (meta device); load them first, or was it parallelized before?")
    if places:
        raise ApplyError(f"the model is on {places[0]} already; call parallelize first, or move it back with .cpu()")


def check_text(plan: Plan) -> None:
    """Raise ``ApplyError`` unless the plan's text, which is what ranks get, is a plan."""
    try:
        Plan.parse(str(plan))
    except (PlanFormatError, ValueError) as error:
        raise ApplyError(f"the plan cannot be sent to other processes as text: {error}") from error


def check_fit(skeleton: Skeleton, plan: Plan, size: int) -> dict[int, Piece]:
    """How each item is split, by number.

    Raises:
        ApplyError: the plan does not fit the model on ``size`` ranks; the largest smaller number that does is named.
    """
    try:
        return _fit(skeleton, plan, size)
    except ApplyError as error:
        smaller = next((n for n in range(size - 1, 0, -1) if n == 1 or _fits(skeleton, plan, n)), 1)
        hint = f"the largest number that works is {smaller}" if smaller > 1 else "no smaller number above 1 works"
        raise ApplyError(f"num_gpus={size} does not fit this model: {error}; {hint}") from error


def _fits(skeleton: Skeleton, plan: Plan, size: int) -> bool:
    try:
        _fit(skeleton, plan, size)
    except ApplyError:
        return False
    return True


def _fit(skeleton: Skeleton, plan: Plan, size: int) -> dict[int, Piece]:
    pieces: dict[str, Piece] = {}
    for rank in sorted({0, size - 1}):  # the others have the shapes of one of these
        model, _ = assemble_model(skeleton, META)
        pieces = apply(model, plan, OneOf(size, rank)).resolution.pieces
        problem = _forward(model) if size > 1 else None
        # A whole model that does not run without data either says nothing. It is asked last: 32 layers take it a second.
        if problem is not None and _forward(assemble_model(skeleton, META)[0]) is None:
            raise ApplyError(f"its heads or widths do not divide over {size} ranks ({problem})")
        if not is_uneven([(piece.length, piece) for piece in pieces.values()], size):
            break
    return {n: pieces[item.name] for n, item in enumerate(skeleton.items) if item.parameter and item.name in pieces}


def _forward(model: Any) -> str | None:
    """What a run without data raises, in words; None if it runs."""
    try:
        run_without_data(model.eval(), kwargs=make_inputs(model))
    except Exception as error:  # whatever a model's own code raises
        return one_line(error)
    return None
