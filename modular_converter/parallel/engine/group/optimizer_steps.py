"""Before a step: an optimizer must compute each entry alone where it gets this process's shares as plain tensors.

DTensors say how they are cut, so that a norm of one is the norm of the whole weight. Some shares have no placement in
torch (`Spread.is_part`); a statistic of one would be that of the share, and each process would take another step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.all_present import meet_of
from modular_converter.parallel.engine.group.kept_gathered import close_gathered
from modular_converter.parallel.engine.group.optimizer_trial import (
    TriedOptimizer,
    couples_weights,
    needs_whole_weights,
)
from modular_converter.parallel.engine.group.refused_wrappers import check_shards, check_wrapped_optimizer
from modular_converter.parallel.engine.group.spread import Spread, gathered_weights
from modular_converter.parallel.errors import ApplyError


# Optimizer -> the number of its weights when it was checked.
_CHECKED: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
# Models without parts, whose gradients have the norms of whole weights.
_WHOLE: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def before_step(users: Any, optimizer: Any, args: Any, kwargs: Any) -> None:
    """The checks before the first step of an optimizer, and after each change of its groups.

    Args:
        users: the sharded models and pipelines of this process.

    Raises ``ApplyError`` if the step would be wrong on shares.
    """
    close_gathered()  # the weights change
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    if _CHECKED.get(optimizer) == count:
        return
    wrapped = check_wrapped_optimizer(optimizer)
    own = {id(one): one for group in optimizer.param_groups for one in group["params"]}
    for user in list(users):
        _refuse_gathered(user, own)
        weights = [one for one in user._trained().weights if id(one.stored) in own]
        if not weights:
            continue
        if isinstance(user, torch.nn.Module):
            check_shards(user)
        if not wrapped:
            shapes = {key: tuple(one.shape) for key, one in own.items()}
            shapes |= {id(one.stored): one.shape for one in weights}
            _check_statistics(user, weights, TriedOptimizer(optimizer, shapes, args[1:], kwargs, _mark))
    _CHECKED[optimizer] = count


def _refuse_gathered(user: Any, own: Any) -> None:
    models = [user] if isinstance(user, torch.nn.Module) else list(user.stages.values())
    found = {id(one) for model in models for key, one in gathered_weights(model).items() if key in own}
    name = next((one.name for one in user._trained().weights if id(one.stored) in found), None)
    if name is not None:
        raise ApplyError(
            f"the optimizer was made of weights as a forward leaves them: its {name} is a copy that was gathered for products, "
            "and a step would not change the model; give it model.parameters() of the parallelized model, or make it "
            "before the first forward"
        )


def _mark(optimizer: Any) -> None:
    """Let a copy of an optimizer make its steps unchecked, whatever groups it gets."""
    _CHECKED[optimizer] = _Any()


class _Any(int):
    """Equal to each number."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


def _check_statistics(user: Any, weights: Sequence[Spread], subject: TriedOptimizer) -> None:
    kind = type(subject.optimizer).__name__
    parts = [one for one in weights if one.is_part]
    _refuse_lists(subject.optimizer, {id(one.stored) for one in parts})
    if parts and (said := needs_whole_weights(subject, [id(one.stored) for one in parts])):
        raise ApplyError(
            f"{kind} does not compute each entry of a weight alone: {said}. {_names(parts)}: this process's share as a plain "
            "tensor, of which its statistics would be wrong; take an optimizer such as AdamW or SGD for it, or a number of "
            "processes that divides the heads and widths"
        )
    if _has_other_stages(user) and couples_weights(subject):
        raise ApplyError(
            f"{kind} computes with several weights together, and a process has only those of its stages: take an optimizer "
            "that treats each weight alone, or a layout without pp"
        )


def _refuse_lists(optimizer: Any, parts: set[int]) -> None:
    """Raise ``ApplyError`` for a group whose lists, of one operation for all weights, would mix DTensors and plain shares."""
    for group in optimizer.param_groups:
        kinds = {id(one) in parts for one in group["params"]}
        option = next((name for name in ("fused", "foreach") if group.get(name)), None)
        if option is not None and len(kinds) > 1:
            raise ApplyError(
                f"{option}=True computes with all weights of a group at once, and some of this one are DTensors, others "
                "plain tensors: give them as two groups, parted by isinstance(weight, DTensor), or leave it out"
            )


def norm_of_whole(users: Any, own: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """The norm of gradients that torch computes for clipping.

    Raises ``ApplyError`` for gradients of shares that are plain tensors, for several gradients of a stage, and in a process
    that computes the norm alone.
    """
    tensors = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
    spread = next((one for one in tensors if isinstance(one, DTensor)), None)
    if spread is not None and any(True for _ in users):
        meet_of("clip_grad_norm_ or get_total_norm of torch", spread.device_mesh.mesh.flatten().tolist())
    given = {id(one) for one in tensors}
    for user in list(users):
        stages = _has_other_stages(user)
        if user in _WHOLE and not stages:
            continue
        weights = user._trained().weights
        if not any(one.is_part for one in weights):
            _WHOLE[user] = True
        found = [one for one in weights if id(one.stored.grad) in given]
        parts = [one for one in found if one.is_part]
        if parts or stages and len(found) > 1:
            name = "pipeline" if stages else "model"
            said = "its own stages" if stages else f"its share of {_names(parts)}"
            raise ApplyError(
                f"a norm of gradients on one process would be that of {said}: take {name}.clip_grad_norm_(max_norm), the norm "
                "of the whole model; weight by weight, shares that are plain tensors cannot be clipped"
            )
    return own(tensors, *args, **kwargs)


def _has_other_stages(user: Any) -> bool:
    return not isinstance(user, torch.nn.Module) and torch.distributed.get_world_size(user._group) > 1


def _names(parts: Sequence[Spread]) -> str:
    return parts[0].name + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")
