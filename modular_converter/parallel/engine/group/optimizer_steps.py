"""Before a step: an optimizer of the weights of some stages must not compute with several weights together.

Whether it does is found by steps of copies of it on small weights: where the gradients of some weights are larger, the steps of
the others must stay as they are. Statistics of single DTensors are of the whole weight. Shares that are no DTensors refuse
them (`share_tensors.py`); a copy's step shows it before any weight has changed. So it does where an optimizer would compute with
a DTensor and a plain tensor, such as a state that it has not made from its weight: torch has no placement of that one.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.gradients import WHOLE_BEFORE, check_shards, check_wrapped_optimizer
from modular_converter.parallel.engine.group.kept_gathered import close_gathered, refuse_broken
from modular_converter.parallel.engine.group.same_calls import meet_of
from modular_converter.parallel.engine.group.share_tensors import ShareTensor, as_plain, mark, marked_classes
from modular_converter.parallel.engine.group.spread import Spread, gathered_weights, models_of
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import TorchDispatchMode, disabled_torch_function, pytree
from modular_converter.parallel.trace.record import written_by


_ENTRIES = 2**22
"""Of all weights of a trial; longer dimensions are cut."""
_SCALES = (1.0, 1e-4, 1e4, 1.0)
"""Of the gradients of successive steps, so that a limit for norms is passed by some and not by others."""
_TOLERANCE = 1e-5
"""Relative to the largest entry: optimizers may compute in single precision."""


@dataclass(frozen=True)
class TriedOptimizer:
    """An optimizer before a step.

    Attributes:
        args, kwargs: of the step.
        mark: is called with each copy of an optimizer before its steps.
    """

    optimizer: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    mark: Callable[[Any], None]


def couples_weights(subject: TriedOptimizer) -> bool:
    """Whether the step of a weight depends on the gradients of others; False if no trial runs."""
    keys = [id(one) for one in _parameters(subject.optimizer)]
    try:
        plain, *changed = _in_some_type(subject, ((), keys[::2], keys[1::2]))
    except Exception:  # the optimizer's own code may raise any error, which the step itself shows
        return False
    others = {key: changed[1 - number % 2] for number, key in enumerate(keys)}
    return not all(_are_alike(*pair) for key in keys for pair in zip(plain[key], others[key][key]))


def refuse_unplaced(subject: TriedOptimizer) -> None:
    """Raise the error of shares or of plain tensors that a step would end in; one of the optimizer's own is left to the step."""
    try:
        _in_some_type(subject, ((),))
    except ApplyError:
        raise
    except Exception:  # as in `couples_weights`
        return


def _moves(
    subject: TriedOptimizer, dtype: torch.dtype | None, changed: Collection[int]
) -> dict[int, list[torch.Tensor]]:
    """Identity of each weight -> its change in each step of a copy of the optimizer.

    Args:
        dtype: of all tensors; their own if None.
        changed: weights with larger gradients.
    """
    copies = _Copies(subject, dtype)
    own = copies.of(subject.optimizer)
    moves: dict[int, list[torch.Tensor]] = {key: [] for key in copies.weights}
    for group in own.param_groups:
        rate = group.get("lr")  # a schedule may begin with 0
        if isinstance(rate, (int, float, torch.Tensor)) and not rate:
            group["lr"] = torch.full_like(rate, 1e-2) if isinstance(rate, torch.Tensor) else 1e-2
    args = [_closure if callable(one) else one for one in subject.args]
    kwargs = {name: _closure if callable(one) else one for name, one in subject.kwargs.items()}
    for number, scale in enumerate(_SCALES):
        before = {}
        for place, (key, weight) in enumerate(copies.weights.items()):
            before[key] = as_plain(weight.detach()).clone()
            factor = scale * (7.0 if key in changed else 1.0)
            weight.grad = _drawn(weight, place, number, factor) if weight.requires_grad else None
        with _RefusedOperations(copies.real):
            type(own).step(own, *args, **kwargs)
        for key, weight in copies.weights.items():
            moves[key].append(as_plain(weight.detach()) - before[key])
    return moves


def _in_some_type(
    subject: TriedOptimizer, changed: Collection[Collection[int]]
) -> list[dict[int, list[torch.Tensor]]]:
    """Trials in double precision, or in the types of the weights if the optimizer does not take it."""
    devices = {one.device.index for one in _parameters(subject.optimizer) if one.device.type == "cuda"}

    def trials(dtype: torch.dtype | None) -> list[dict[int, list[torch.Tensor]]]:
        found = []
        for keys in changed:
            torch.manual_seed(0)
            found.append(_moves(subject, dtype, keys))
        return found

    with torch.random.fork_rng(devices=sorted(devices)):
        try:
            return trials(torch.float64)
        except Exception:  # as in `couples_weights`
            return trials(None)


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _closure() -> torch.Tensor:
    return torch.ones(())


def _drawn(like: torch.Tensor, number: int, step: int, factor: float = 1.0) -> torch.Tensor:
    chance = torch.Generator().manual_seed(1000 * number + step + 1)
    drawn = torch.randn(as_plain(like).shape, dtype=torch.float64, generator=chance).to(like.device, like.dtype)
    return _marked_as(like, drawn * factor)


def _marked_as(like: Any, made: torch.Tensor) -> torch.Tensor:
    if isinstance(like, ShareTensor):
        mark(made, like._whole)  # type: ignore[attr-defined]
    elif isinstance(like, (DTensor, _OfDTensor)):
        made.__class__ = _OF_DTENSORS[type(made)]
    return made


class _OfDTensor:
    """The part of the classes of copies of DTensors."""

    __slots__ = ()
    __torch_function__ = disabled_torch_function
    device_mesh = "of a trial"  # which parts lists as that of a DTensor does


_OF_DTENSORS = marked_classes(_OfDTensor, torch.Tensor, torch.nn.Parameter)


class _Copies:
    """Copies of an optimizer and of all that it holds, with small tensors.

    Attributes:
        weights: identity of a weight -> its copy.
        real: where the data of the real tensors are.
    """

    def __init__(self, subject: TriedOptimizer, dtype: torch.dtype | None) -> None:
        self.mark, self.dtype = subject.mark, dtype
        self.made: dict[int, tuple[Any, Any]] = {}  # with the original, so that no other object gets its identity
        self.real: set[int] = set()
        self.weights: dict[int, torch.nn.Parameter] = {}
        locals_ = [(one, self._noted(one)) for one in _parameters(subject.optimizer)]
        self.longest = 2**20
        while sum(math.prod(min(n, self.longest) for n in local.shape) for _, local in locals_) > _ENTRIES:
            self.longest //= 2
        for number, (one, local) in enumerate(locals_):
            copy = torch.nn.Parameter(self._small(local), one.requires_grad)
            copy.data.copy_(_drawn(copy, number, -1))
            copy.__dict__.update(vars(one))
            _marked_as(one, copy)
            self.weights[id(one)] = copy
            self.made[id(one)] = one, copy

    def of(self, value: Any) -> Any:
        """The copy of an object; the object itself if nothing in it can change."""
        if id(value) not in self.made:
            self.made[id(value)] = value, value
            self._copy(value)
        return self.made[id(value)][1]

    def _copy(self, value: Any) -> None:
        def found(copy: Any) -> Any:
            self.made[id(value)] = value, copy
            return copy

        if isinstance(value, torch.Tensor):
            found(self._tensor(value))
        elif isinstance(value, torch.Generator):
            found(value.clone_state())
        elif isinstance(value, types.MethodType):
            found(types.MethodType(value.__func__, self.of(value.__self__)))
        elif isinstance(value, dict):
            made = found(value.copy())
            made.clear()
            for key, one in value.items():
                made[self.of(key)] = self.of(one)
        elif isinstance(value, (list, set)):
            made = found(value.copy())
            made.clear()
            (made.extend if isinstance(made, list) else made.update)([self.of(one) for one in value])
        elif type(value) is tuple:
            found(tuple(self.of(one) for one in value))
        elif _has_state(value):
            self._object(value, found(object.__new__(type(value))))

    def _object(self, value: Any, made: Any) -> None:
        own = {name: one for name, one in vars(value).items() if name != "step"}  # schedules wrap it for one optimizer
        if isinstance(value, torch.optim.Optimizer):
            self.mark(made)
        else:
            own = dict(vars(value))
        made.__dict__.update({name: self.of(one) for name, one in own.items()})

    def _tensor(self, value: Any) -> torch.Tensor:
        local = self._noted(value)
        return _marked_as(value, self._small(local)) if local.dim() else local.clone()

    def _noted(self, value: Any) -> torch.Tensor:
        for one in (value, value.grad if value.is_leaf else None):
            if one is not None:
                local = one.detach()
                local = local.to_local() if isinstance(local, DTensor) else as_plain(local)
                self.real.add(local.untyped_storage().data_ptr())
        found: torch.Tensor = value.detach()
        return found.to_local() if isinstance(found, DTensor) else as_plain(found)

    def _small(self, local: torch.Tensor) -> torch.Tensor:
        corner = local[tuple(slice(0, self.longest) for _ in local.shape)]
        return corner.to(self.dtype if corner.is_floating_point() else None, copy=True)


def _has_state(value: Any) -> bool:
    """Whether an object has attributes that a step may change. A model and what torch has made count as fixed."""
    fixed = (torch.nn.Module, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    if isinstance(value, torch.optim.Optimizer):
        return True
    own = type(value).__module__.partition(".")[0] not in ("torch", "builtins", "functools")
    return own and hasattr(value, "__dict__") and not isinstance(value, fixed)


class _RefusedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes to real tensors, which an optimizer may have in places that are not copied, and mixtures with DTensors are errors."""

    def __init__(self, real: Collection[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.real = real

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for one in written_by(func, args, kwargs or {}):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() in self.real:
                raise ApplyError("it writes to tensors of the model that are not in its groups or state")
        given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if not any(isinstance(one, _OfDTensor) for one in given):
            return func(*args, **kwargs)
        plain = next((one for one in given if not isinstance(one, _OfDTensor) and one.numel() != 1), None)
        if plain is not None:
            raise ApplyError(
                f"a step would compute {func} of a DTensor and a plain tensor of {plain.dim()} dimensions, which each process may have "
                "another of: let the optimizer make its state from the weight (torch.zeros_like(weight), weight.new_zeros(…)), or "
                "take another one (torch.optim.Adafactor for transformers.Adafactor)"
            )
        found = func(*args, **kwargs)
        for one in pytree.tree_leaves(found):
            if type(one) in _OF_DTENSORS:
                one.__class__ = _OF_DTENSORS[type(one)]
        return found


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether entries are equal, but for rounding."""
    if not one.numel():
        return True
    rounding = torch.finfo(one.dtype).eps * 8
    error = (one.double() - other.double()).abs().nan_to_num(0.0 if one.isnan().equal(other.isnan()) else 1e30)
    return bool(error.max() <= _TOLERANCE * one.double().nan_to_num().abs().max() + rounding)


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
    for model in (one for user in list(users) for one in models_of(user)):
        refuse_broken(model, optimizer)
    params = [one for group in optimizer.param_groups for one in group["params"]]
    if _CHECKED.get(optimizer) == len(params):
        return
    if any(WHOLE_BEFORE in vars(one) for one in params):
        _refuse_replaced(users, params)
    wrapped = check_wrapped_optimizer(optimizer)
    own = {id(one): one for one in params}
    for user in list(users):
        _refuse_gathered(user, own)
        weights = [one for one in user._trained().weights if id(one.stored) in own]
        if not weights:
            continue
        if isinstance(user, torch.nn.Module):
            check_shards(user)
        if not wrapped:
            _check(user, weights, TriedOptimizer(optimizer, args[1:], kwargs, _mark))
    _CHECKED[optimizer] = len(params)


def _refuse_replaced(users: Any, params: Iterable[Any]) -> None:
    """Raise ``ApplyError`` for weights that were whole before ``parallelize``, and are not those of the model any more."""
    now = {id(one) for user in list(users) for one in user.parameters()}
    if any(WHOLE_BEFORE in vars(one) and id(one) not in now for one in params):
        raise ApplyError(
            "the optimizer was made before parallelize, which has replaced the weights, so that a step would change nothing of the "
            "model: make it afterwards, of model.parameters()"
        )


def _refuse_gathered(user: Any, own: Any) -> None:
    found = {id(one) for model in models_of(user) for key, one in gathered_weights(model).items() if key in own}
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


def _check(user: Any, weights: Sequence[Spread], subject: TriedOptimizer) -> None:
    parts = [one.stored for one in weights if one.is_part]
    for one in parts:  # those from a file are not marked
        for value in subject.optimizer.state.get(one, {}).values():
            if type(value) in (torch.Tensor, DTensor) and value.shape == as_plain(one).shape:
                mark(value, one._whole)
    if parts or not type(subject.optimizer).__module__.startswith(
        "torch."
    ):  # torch's own make their state from weights
        refuse_unplaced(subject)
    if _has_other_stages(user) and couples_weights(subject):
        raise ApplyError(
            f"{type(subject.optimizer).__name__} computes with several weights together, and a process has only those of its "
            "stages: take an optimizer that treats each weight alone, or a layout without pp"
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
    return own([_with_an_entry(one) for one in tensors], *args, **kwargs)


def _with_an_entry(tensor: Any) -> Any:
    """A tensor of the same norm, of which this process has an entry: of none torch has no largest, and others would wait."""
    if not isinstance(tensor, DTensor) or tensor._local_tensor.numel():
        return tensor
    zero = tensor._local_tensor.new_zeros([1] * tensor.dim())
    shape, stride = tensor.shape, tensor.stride()
    return DTensor.from_local(zero, tensor.device_mesh, tensor.placements, run_check=False, shape=shape, stride=stride)


def _has_other_stages(user: Any) -> bool:
    return not isinstance(user, torch.nn.Module) and torch.distributed.get_world_size(user._group) > 1


def _names(parts: Sequence[Spread]) -> str:
    return parts[0].name + (f" and {len(parts) - 1} more" if len(parts) > 1 else "")
