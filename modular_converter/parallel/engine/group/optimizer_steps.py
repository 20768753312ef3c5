"""Before a step: an optimizer must compute each entry alone where it gets this process's shares as plain tensors.

DTensors say how they are cut, so that a norm of one is the norm of the whole weight. Some shares have no placement in
torch (`Spread.is_part`); a statistic of one would be that of the share, and each process would take another step.

Whether it does is found by steps of a copy of it on small weights. The copy has weights and states of the same kinds, cut
to their leading entries, once longer and once shorter. If each entry is computed alone, the steps on the shorter weights
are the leading entries of the steps on the longer ones.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.kept_gathered import close_gathered
from modular_converter.parallel.engine.group.refused_wrappers import check_shards, check_wrapped_optimizer
from modular_converter.parallel.engine.group.same_calls import meet_of
from modular_converter.parallel.engine.group.share_tensors import as_plain
from modular_converter.parallel.engine.group.spread import Spread, gathered_weights
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import TorchDispatchMode


Shape = tuple[int, ...]
_ENTRIES = 2**22
"""Of all weights of a trial; longer dimensions are cut."""
_SHORTER = 0.6
_SCALES = (1.0, 1e-4, 1e4, 1.0)
"""Of the gradients of successive steps, so that a limit for norms is passed by some and not by others."""
_TOLERANCE = 1e-5
"""Relative to the largest entry: optimizers may compute in single precision."""


@dataclass(frozen=True)
class TriedOptimizer:
    """An optimizer before a step.

    Attributes:
        shapes: identity of each of its weights -> the shape of the whole weight.
        args, kwargs: of the step.
        mark: is called with each copy of an optimizer before its steps.
    """

    optimizer: Any
    shapes: Mapping[int, Shape]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    mark: Callable[[Any], None]


def needs_whole_weights(subject: TriedOptimizer, watched: Collection[int]) -> str:
    """Why an optimizer needs more of the watched weights than parts, in words; empty if each entry is computed alone."""
    try:
        longer, shorter = _in_some_type(subject, (1.0, _SHORTER))
    except Exception as error:  # the optimizer's own code may raise any error
        return f"a trial of it on small weights fails ({type(error).__name__}: {error})"
    if not all(_is_corner(*pair) for key in watched for pair in zip(longer.moves[key], shorter.moves[key])):
        return "its step on a part of a weight is not that part of its step on the whole weight"
    if not all(_same_state(longer.states[key], shorter.states[key]) for key in watched):
        return "it keeps statistics of whole weights"
    return ""


def couples_weights(subject: TriedOptimizer) -> bool:
    """Whether the step of a weight depends on the gradients of others; False if no trial runs."""
    keys = list(subject.shapes)
    try:
        plain, *changed = _in_some_type(subject, (1.0,) * 3, ((), keys[::2], keys[1::2]))
    except Exception:  # as above; the step itself shows the error
        return False
    others = {key: changed[1 - number % 2] for number, key in enumerate(keys)}
    return not all(_is_corner(*pair) for key in keys for pair in zip(plain.moves[key], others[key].moves[key]))


class _Trial:
    """Steps of a copy of an optimizer.

    Args:
        part: of each dimension.
        dtype: of all tensors; their own if None.
        changed: weights with larger gradients.

    Attributes:
        moves: identity of a weight -> its change in each step.
        states: identity of a weight -> its state behind the last step.
    """

    def __init__(
        self, subject: TriedOptimizer, part: float, dtype: torch.dtype | None, changed: Collection[int]
    ) -> None:
        copies = _Copies(subject, part, dtype)
        own = copies.of(subject.optimizer)
        self.moves: dict[int, list[torch.Tensor]] = {key: [] for key in subject.shapes}
        for group in own.param_groups:
            rate = group.get("lr")  # a schedule may begin with 0
            if isinstance(rate, (int, float, torch.Tensor)) and not rate:
                group["lr"] = torch.full_like(rate, 1e-2) if isinstance(rate, torch.Tensor) else 1e-2
        args = [_closure if callable(one) else one for one in subject.args]
        kwargs = {name: _closure if callable(one) else one for name, one in subject.kwargs.items()}
        for number, scale in enumerate(_SCALES):
            before = {}
            for place, (key, weight) in enumerate(copies.weights.items()):
                before[key] = weight.detach().clone()
                factor = scale * (7.0 if key in changed else 1.0)
                weight.grad = copies.drawn(weight, place, number) * factor if weight.requires_grad else None
            with _RefusedWrites(copies.real):
                type(own).step(own, *args, **kwargs)
            for key, weight in copies.weights.items():
                self.moves[key].append(weight.detach() - before[key])
        self.states = {key: own.state.get(weight, {}) for key, weight in copies.weights.items()}


def _in_some_type(
    subject: TriedOptimizer, parts: Collection[float], changed: Collection[Collection[int]] = ((), ())
) -> list[_Trial]:
    """Trials in double precision, or in the types of the weights if the optimizer does not take it."""
    devices = {one.device.index for one in _parameters(subject.optimizer) if one.device.type == "cuda"}

    def trials(dtype: torch.dtype | None) -> list[_Trial]:
        found = []
        for part, keys in zip(parts, changed, strict=True):
            torch.manual_seed(0)
            found.append(_Trial(subject, part, dtype, keys))
        return found

    with torch.random.fork_rng(devices=sorted(devices)):
        try:
            return trials(torch.float64)
        except Exception:  # as in `needs_whole_weights`
            return trials(None)


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _closure() -> torch.Tensor:
    return torch.ones(())


class _Copies:
    """Copies of an optimizer and of all that it holds, with small tensors.

    Attributes:
        weights: identity of a weight -> its copy.
        real: where the data of the real tensors are.
    """

    def __init__(self, subject: TriedOptimizer, part: float, dtype: torch.dtype | None) -> None:
        self.mark, self.dtype, self.shapes = subject.mark, dtype, subject.shapes
        longest = 2**20
        while sum(math.prod(min(n, longest) for n in shape) for shape in subject.shapes.values()) > _ENTRIES:
            longest //= 2
        self.longest, self.part = longest, part
        self.made: dict[int, tuple[Any, Any]] = {}  # with the original, so that no other object gets its identity
        self.real: set[int] = set()
        self.whole: dict[int, Shape] = {}
        self.known: dict[Shape, Shape] = {}  # shape of a share -> of its whole weight
        self.weights: dict[int, torch.nn.Parameter] = {}
        for number, one in enumerate(_parameters(subject.optimizer)):
            shape = subject.shapes[id(one)]
            local = self._noted(one)
            self.known.setdefault(tuple(local.shape), shape)
            copy = torch.nn.Parameter(self._typed(local).new_empty(self.shorter(shape)), one.requires_grad)
            self.whole[id(copy)] = self.longer(shape)
            copy.data.copy_(self.drawn(copy, number, -1))
            copy.__dict__.update(vars(one))
            self.weights[id(one)] = copy
            self.made[id(one)] = one, copy

    def longer(self, shape: Shape) -> Shape:
        """The shape of a copy that is not cut further."""
        return tuple(min(n, self.longest) for n in shape)

    def shorter(self, shape: Shape) -> Shape:
        """The shape of a copy."""
        return tuple(math.ceil(n * self.part) for n in self.longer(shape))

    def drawn(self, like: torch.Tensor, number: int, step: int) -> torch.Tensor:
        """Random entries, larger further behind: the leading ones are the same for each part, their statistics are not."""
        shape = self.whole[id(like)]
        chance = torch.Generator().manual_seed(1000 * number + step + 1)
        found = torch.randn(shape, dtype=torch.float64, generator=chance)
        for dim, length in enumerate(shape):
            rising = torch.linspace(0.2, 2.0, length, dtype=torch.float64)
            found = found * rising.view(-1, *[1] * (len(shape) - 1 - dim))
        return _corner(found, like.shape).to(like.device, like.dtype)

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
                made[self.of(key)] = self._of_weight(key, one)
        elif isinstance(value, (list, set)):
            made = found(value.copy())
            made.clear()
            (made.extend if isinstance(made, list) else made.update)([self.of(one) for one in value])
        elif type(value) is tuple:
            found(tuple(self.of(one) for one in value))
        elif _has_state(value):
            self._object(value, found(object.__new__(type(value))))

    def _of_weight(self, key: Any, value: Any) -> Any:
        """The copy of an entry of a dict; the state of a weight has its shape, whatever other weights have shares alike."""
        if id(key) not in self.weights:
            return self.of(value)
        known = self.known
        self.known = {**known, tuple(self._noted(key).shape): self.shapes[id(key)]}
        try:
            return self.of(value)
        finally:
            self.known = known

    def _object(self, value: Any, made: Any) -> None:
        own = {name: one for name, one in vars(value).items() if name != "step"}  # schedules wrap it for one optimizer
        if isinstance(value, torch.optim.Optimizer):
            self.mark(made)
        else:
            own = dict(vars(value))
        made.__dict__.update({name: self.of(one) for name, one in own.items()})

    def _tensor(self, value: Any) -> torch.Tensor:
        local = self._noted(value)
        if not local.dim():
            return local.clone()
        whole = self.known.get(tuple(local.shape))
        typed = self._typed(local)
        if whole is None:
            return _corner(typed, self.shorter(local.shape)).clone()
        return typed.new_full(self.shorter(whole), float(local.double().mean()))

    def _noted(self, value: Any) -> torch.Tensor:
        for one in (value, value.grad if value.is_leaf else None):
            if one is not None:
                local = one.detach()
                local = local.to_local() if isinstance(local, DTensor) else as_plain(local)
                self.real.add(local.untyped_storage().data_ptr())
        found: torch.Tensor = value.detach()
        return found.to_local() if isinstance(found, DTensor) else as_plain(found)

    def _typed(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self.dtype) if self.dtype is not None and tensor.is_floating_point() else tensor


def _has_state(value: Any) -> bool:
    """Whether an object has attributes that a step may change. A model and what torch has made count as fixed."""
    fixed = (torch.nn.Module, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    if isinstance(value, torch.optim.Optimizer):
        return True
    own = type(value).__module__.partition(".")[0] not in ("torch", "builtins", "functools")
    return own and hasattr(value, "__dict__") and not isinstance(value, fixed)


class _RefusedWrites(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes to real tensors, which an optimizer may have in places that are not copied, are errors."""

    def __init__(self, real: Collection[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.real = real

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable:
            for said, given in zip(func._schema.arguments, args):
                if said.alias_info is not None and said.alias_info.is_write:
                    for one in given if isinstance(given, (list, tuple)) else [given]:
                        if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() in self.real:
                            raise ApplyError("it writes to tensors of the model that are not in its groups or state")
        return func(*args, **(kwargs or {}))


def _corner(tensor: torch.Tensor, shape: Shape) -> torch.Tensor:
    return tensor[tuple(slice(0, length) for length in shape)]


def _is_corner(longer: torch.Tensor, shorter: torch.Tensor) -> bool:
    """Whether entries are the leading ones of a longer tensor, but for rounding."""
    if longer.dim() != shorter.dim() or any(n > m for n, m in zip(shorter.shape, longer.shape)):
        return False
    corner = _corner(longer, shorter.shape).double()
    if not corner.numel():
        return True
    rounding = torch.finfo(longer.dtype).eps * 8 if longer.is_floating_point() else 0.0
    error = (corner - shorter.double()).abs().nan_to_num(0.0 if bool(corner.isnan().equal(shorter.isnan())) else 1e30)
    return bool(error.max() <= _TOLERANCE * corner.nan_to_num().abs().max() + rounding)


def _same_state(longer: Any, shorter: Any) -> bool:
    if isinstance(longer, torch.Tensor):
        return isinstance(shorter, torch.Tensor) and _is_corner(longer, shorter)
    if isinstance(longer, dict):
        return set(longer) == set(shorter) and all(_same_state(one, shorter[key]) for key, one in longer.items())
    if isinstance(longer, (list, tuple)):
        return len(longer) == len(shorter) and all(map(_same_state, longer, shorter))
    if isinstance(longer, float):
        return math.isclose(longer, shorter, rel_tol=_TOLERANCE) or longer != longer and shorter != shorter
    return longer == shorter if isinstance(longer, (int, str, bool)) else True


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
