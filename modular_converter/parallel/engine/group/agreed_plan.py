"""One plan for all processes of a group: the first process decides, and all processes compare their models."""

from __future__ import annotations

import copy
import hashlib
import logging
from itertools import zip_longest
from typing import Any

import torch

from modular_converter.parallel.choice.select_plan import GivenPlan, given_plan, select_plan
from modular_converter.parallel.choice.small_instances import unproven_arguments
from modular_converter.parallel.engine.base.probe import refuse_difference
from modular_converter.parallel.engine.group.gradients import WHOLE_BEFORE
from modular_converter.parallel.engine.group.same_calls import everywhere, from_first_process
from modular_converter.parallel.engine.group.same_settings import settings_of_modules
from modular_converter.parallel.engine.group.weight_sources import WeightSource
from modular_converter.parallel.errors import ApplyError, PlanError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.proof.judge import HALF_TYPES
from modular_converter.parallel.shard.collectives import ProcessGroup


logger = logging.getLogger(__name__)
# Entries of each weight that are compared between processes.
_PROBES = 256


def agreed_plan(
    model: torch.nn.Module, given: GivenPlan | None, group: ProcessGroup, ranks: int, experts: bool = False
) -> tuple[Plan, str]:
    """The plan that the first process selects, and its origin. All processes must call it.

    Args:
        group: all processes.
        ranks: the number of shares; for 1 the plan is empty.
        experts: divide only the experts.

    Raises ``ApplyError`` on all processes if they were given different plans, or the first process finds none.
    """
    texts = everywhere(_text_of(given, type(model).__name__), group)
    other = next((rank for rank, text in enumerate(texts) if text != texts[0]), None)
    if other is not None:
        raise ApplyError(f"process {other} was given another plan= than process 0: give the same plan everywhere")
    if ranks == 1 and given is None:
        return Plan(type(model).__name__), "one process holds each layer"

    def chosen() -> tuple[str, str]:
        plan, origin, _ = select_plan(model, given, ranks, experts)
        return str(plan), origin

    text, origin = from_first_process(chosen, group)
    plan = Plan.parse(text)
    digests = everywhere(hashlib.sha256(f"{ranks}\n{plan}".encode()).hexdigest(), group)
    if len(set(digests)) > 1:
        raise ApplyError("the processes parse the plan differently: use the same version of this package everywhere")
    return plan, origin


def agreed_unproven(model: torch.nn.Module, given: GivenPlan | None, group: ProcessGroup) -> frozenset[str]:
    """The arguments of the forward in no run of the first process's proof; empty for a given plan."""

    return from_first_process(lambda: frozenset(() if given is not None else unproven_arguments(model)), group)


def refuse_difference_in_group(model: Any, plan: Plan, source: WeightSource, everyone: ProcessGroup) -> None:
    """Raise ``ApplyError`` on all processes if one layer of each kind gives other numbers when it is sharded."""
    probe = source.probe(model, plan)
    if isinstance(probe, str):
        logger.info("%s is not tried before it is sharded: %s", type(model).__name__, probe)
        return
    short: Any = copy.deepcopy(probe.model).eval()

    def run(inputs: dict[str, Any]) -> Any:
        moved = {name: v.to(source.place) if isinstance(v, torch.Tensor) else v for name, v in inputs.items()}
        with torch.no_grad():
            return short.forward(**moved)

    try:
        source.apply_plan(short, fitting(plan, short))
        half = any(p.dtype in HALF_TYPES for p in model.parameters())
        said = probe.difference(run, half)
    except Exception as error:  # a wrong plan can cause any error in a model's own code
        said = one_line(error, 200)
    said = next(filter(None, everywhere(said, everyone)), "")
    refuse_difference(said, "when it is sharded", probe.draws)


def refuse_other_weights(model: Any, group: ProcessGroup, place: torch.device) -> None:
    """Raise ``ApplyError`` on all processes if one has other weights: shares would be of different models."""
    shapes = [(name, str(tuple(p.shape))) for name, p in model.named_parameters()]
    known = everywhere(shapes + settings_of_modules(model), group)
    for rank, names in enumerate(known):
        if names != known[0]:
            first = next(one or other for one, other in zip_longest(names, known[0]) if one != other)
            raise ApplyError(
                f"process {rank} has another model than process 0, from {' '.join(first)} on: build the same model"
            )
    read = {name: p.detach() for name, p in model.named_parameters() if not p.is_meta}  # files are compared elsewhere
    sums = [p.reshape(-1)[:: max(1, p.numel() // _PROBES)].double().sum() for p in read.values()]
    own = torch.stack([one.cpu() for one in sums]) if sums else torch.zeros(1, dtype=torch.float64)
    shares = group.all_gather(own.to(place))
    names = list(read)
    for rank, other in enumerate(shares):
        differs = ~torch.isclose(other, shares[0], rtol=0.0, atol=0.0, equal_nan=True)
        if bool(differs.any()):
            raise ApplyError(
                f"{names[int(differs.nonzero()[0])]} has other values on process {rank} than on process 0: load the "
                "same checkpoint everywhere, or call torch.manual_seed with the same number before the model is made"
            )
    for one in model.parameters():
        vars(one)[WHOLE_BEFORE] = True


def _text_of(given: GivenPlan | None, name: str) -> str:
    try:
        return "" if given is None else str(given_plan(given, name))
    except PlanError as error:
        return f"unreadable: {error}"
