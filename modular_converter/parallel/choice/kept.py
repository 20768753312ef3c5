"""The bytes of weights on a rank under a plan, and the weights that stay whole."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import prod

import torch

from modular_converter.findings import first_of
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.plans.patterns import matches
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, resolve
from modular_converter.parallel.shard.shares import largest_share


logger = logging.getLogger(__name__)
# A warning is logged if a rank keeps more than this multiple of its equal part.
_CLEARLY_MORE = 1.5
_NAMED = 3


@dataclass(frozen=True)
class Kept:
    """Bytes of all parameters and of one rank's shares; the names of whole parameters, the largest first."""

    all: int
    rank: int
    whole: tuple[str, ...]

    @property
    def share(self) -> float:
        """The fraction of the bytes on one rank, 0 to 1."""
        return self.rank / self.all if self.all else 1.0


def kept(model: torch.nn.Module, plan: Plan, ranks: int) -> Kept:
    """The bytes on the rank with the largest shares. Raises ``PlanError`` if a rule does not fit the model."""
    pieces = resolve(plan, model).pieces
    names: dict[int, list[str]] = {}
    parameters = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        parameters[id(parameter)] = parameter
    total = rank = 0
    whole = []
    for key, parameter in parameters.items():
        size = parameter.numel() * parameter.element_size()
        piece = next((pieces[name] for name in names[key] if name in pieces), None)
        own = _own_part(parameter, piece, ranks)
        total, rank = total + size, rank + own * parameter.element_size()
        if own == parameter.numel():
            whole.append((size, names[key][0]))
    return Kept(total, rank, tuple(name for _, name in sorted(whole, key=lambda pair: -pair[0])))


def _own_part(parameter: torch.nn.Parameter, piece: Piece | None, ranks: int) -> int:
    """Entries on the rank with the largest share; all entries if the axis does not divide among the ranks."""
    try:
        return prod(largest_share(tuple(parameter.shape), piece, ranks))
    except ApplyError:
        return parameter.numel()


def log_kept(model: torch.nn.Module, plan: Plan, ranks: int) -> None:
    """Log the fraction of the weights that a rank keeps; warn if it is clearly more than the rank's equal part."""
    try:
        found = kept(model, plan, ranks)
    except PlanError:  # reported, with its place, when the plan is applied
        return
    name = type(model).__name__
    logger.info("%s: each of %d ranks keeps %.1f %% of the weights", name, ranks, 100 * found.share)
    if ranks > 1 and found.share > _CLEARLY_MORE / ranks:
        said = first_of([f"{weight} ({_reason(plan, weight)})" for weight in found.whole], _NAMED)
        share = 100 * found.share
        logger.warning("%s: each of %d ranks keeps %.1f %% of the weights; whole: %s", name, ranks, share, said)


def _reason(plan: Plan, weight: str) -> str:
    """The plan's reason why a weight stays whole."""
    owner = weight.rpartition(".")[0]
    return next((why for pattern, why in plan.whole if matches(pattern, [weight, owner])), "no rule of the plan")
