"""Dropout of a model that is sharded over a process group: it drops the same entries as the whole model in one process.

Processes may have different seeds. A tensor that all processes hold must lose the same entries on each process, or the
copies of whole weights diverge. A share loses the entries that the whole tensor would lose there.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.choice.skeleton import (
    META,
    Skeleton,
    assemble_model,
    run_without_data,
    tried_without_data,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import ProcessGroup, borders_of
from modular_converter.parallel.tiny.fields import dropout_rates, skips_layers
from modular_converter.parallel.trace.record import attention_arguments


# The path of the module with the dropout, and the number of the dropout within the module's call.
Place = tuple[str, int]
# A sharded dimension, and its borders: the first entry of each rank, then the whole length.
Shared = tuple[int, tuple[int, ...]]
_TRAINING = attrgetter("training")
Found = Callable[[Place, torch.Tensor], Shared | None]


@dataclass
class _Watch:
    """The stack of running modules, and a mode that replaces their dropout.

    Attributes:
        found: called with the place and tensor of each dropout; returns how the tensor is sharded, or None.
        outermost: called with the module and arguments of the outermost call, before it; returns a function to call after
            it, or None if the call drops nothing, so that no mode is needed.
    """

    found: Found
    rank: int
    outermost: Callable[[Any, Any, Any], Callable[[], None] | None] = lambda *_: lambda: None
    stack: list[list[Any]] = field(default_factory=list)
    handles: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    mode: Any = None
    leave: Any = None

    def attach(self, model: torch.nn.Module) -> None:
        """Watch all modules of a model that are not watched, also those that a checkpoint runs again."""
        for path, module in model.named_modules():
            if path not in self.handles:
                before = module.register_forward_pre_hook(self._entering(path), with_kwargs=True)
                self.handles[path] = before, module.register_forward_hook(self._leaving(path), always_call=True)

    def detach(self, kept: Collection[str] = ()) -> None:
        for path in [path for path in self.handles if path not in kept]:
            for handle in self.handles.pop(path):
                handle.remove()

    def _entering(self, path: str) -> Callable[..., None]:
        def entering(module: Any, args: Any, kwargs: Any) -> None:
            if not self.stack:
                self.leave = self.outermost(module, args, kwargs)
                if self.leave is not None:
                    self.mode = _Drops(self)
                    self.mode.__enter__()
            self.stack.append([path, 0])

        return entering

    def _leaving(self, path: str) -> Callable[..., None]:
        def leaving(module: Any, args: Any, result: Any) -> None:
            if not self.stack or self.stack[-1][0] != path:
                return  # another hook has ended the call before ``entering`` ran
            self.stack.pop()
            if not self.stack and self.leave is not None:
                self.mode.__exit__(None, None, None)
                self.leave()

        return leaving

    def next_place(self) -> Place:
        top = self.stack[-1]
        top[1] += 1
        return top[0], top[1]


class _Drops(TorchFunctionMode):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "dropout" and args and isinstance(args[0], torch.Tensor):
            return self._dropout(func, *args, **kwargs)
        if name == "scaled_dot_product_attention":
            return self._attention(func, args, kwargs)
        return func(*args, **kwargs)

    def _dropout(
        self, func: Any, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or not p:
            return input
        shared = self.watch.found(self.watch.next_place(), input)
        if shared is None:
            kept: torch.Tensor = func(input, p, training, False)
        else:
            kept = input * self._share_of_mask(input, p, shared)
        return input.copy_(kept) if inplace else kept

    def _share_of_mask(self, like: torch.Tensor, p: float, shared: Shared) -> torch.Tensor:
        """This process's part of the whole tensor's mask, which each process draws."""
        dim, borders = shared
        shape = list(like.shape)
        shape[dim] = borders[-1]
        mask = F.dropout(torch.ones(shape, dtype=like.dtype, device=like.device), p, True)
        return mask.narrow(dim, borders[self.watch.rank], like.shape[dim])

    def _attention(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        given = attention_arguments(args, kwargs)
        query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
        rate = given["dropout_p"]
        shared = self.watch.found(self.watch.next_place(), query) if rate else None
        if shared is None:
            found: torch.Tensor = func(*args, **kwargs)
            return found
        # torch's function that takes a mask of dropout prints that it is for tests, and gives NaN at a rate of 1.
        if given["enable_gqa"]:
            times = query.shape[-3] // key.shape[-3]
            key, value = (tensor.repeat_interleave(times, -3) for tensor in (key, value))
        scores = query @ key.transpose(-2, -1) * (given["scale"] or query.shape[-1] ** -0.5)
        if given["is_causal"]:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        weights = scores.softmax(-1)
        result: torch.Tensor = weights * self._share_of_mask(weights, rate, shared) @ value
        return result


class SharedDropout:
    """The dropout of a sharded model; ``detach`` restores the model's own.

    A model whose rates are all 0 may have a rate in its code: a run without data at the first training call shows it.
    Without dropout there is no mode: it took 3 % of a step of 1.3 billion parameters.

    Args:
        watched: whether modules have hooks, which code that torch compiles has not; dropout in it is refused.
        parts: the processes, if a part that is called by itself calls their ``before_part``. While the model drops nothing in
            training either, next to nothing is watched then: the hooks took a third of a forward's Python functions.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        skeleton: Skeleton,
        group: dist.ProcessGroup | None,
        place: torch.device,
        watched: bool = True,
        parts: ProcessGroup | None = None,
    ) -> None:
        self.model, self.skeleton, self.group, self.place = model, skeleton, group, place
        self.shared: dict[Place, Shared | None] = {}
        self.whole: dict[Place, tuple[int, ...]] | None = None
        self.given: tuple[Any, Any] | None = None
        self.modules = list(model.modules())
        self.rates = [(module, name) for module in self.modules for name in dropout_rates(module)]
        self.by_number: bool | None = None  # whether the code has a rate; None if unknown
        self.tried = False  # the run without data that sets ``by_number``
        self.as_first = 0  # calls in which all have drawn the first process's numbers
        self.watch = _Watch(self._found, dist.get_rank(group), self._outermost)
        self.rests, self.resting = parts is not None, False
        if parts is not None:
            refuse = weakref.WeakMethod(self._refuse_part)  # a group is kept by classes, which outlive the model
            parts.before_part = lambda: refuse_part() if (refuse_part := refuse()) is not None else None
        self.refusing: Any = None
        if dist.get_world_size(group) > 1 and watched:
            self.watch.attach(model)
        elif dist.get_world_size(group) > 1:
            self.refusing = model.register_forward_pre_hook(self._refuse, with_kwargs=True)

    def detach(self) -> None:
        self.watch.detach()
        if self.refusing is not None:
            self.refusing.remove()

    def _refuse_part(self) -> None:
        if self.resting and self._has_rates():
            raise ApplyError(
                "a rate of dropout was set after parallelize: call the model once before a part of it is called by itself, so "
                "that all processes drop the same entries"
            )

    def _has_rates(self) -> bool:
        return any(vars(owner).get(name, 0.0) for owner, name in self.rates)

    def _rest(self, args: Any, kwargs: Any) -> None:
        """At a call of the model: begin or end to rest. What has no weights, but a rate, would not be refused and is watched."""
        idle = not self._has_rates() and self._drops_by_number(args, kwargs) is False
        if idle and not self.resting:
            bare = {module for module, _ in self.rates if next(module.parameters(), None) is None}
            self.watch.detach(["", *(path for path, module in self.model.named_modules() if module in bare)])
        elif self.resting and not idle:
            self.watch.attach(self.model)
        self.resting = idle

    def _refuse(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._may_drop(module, args, kwargs):
            raise ApplyError("dropout in compiled layers is not the same on all processes; set dropout to 0")

    def _may_drop(self, module: Any, args: Any, kwargs: Any) -> bool | None:
        """Whether a call of a module may drop something; None if the model does not run without data.

        The mode may be that of another module than the rate: attention reads its own mode and the rate of its dropout.
        """
        if not any(map(_TRAINING, self.modules)):
            return False
        if self._has_rates():
            return True
        return self._drops_by_number(args, kwargs) if module is self.model else self.by_number

    def _drops_by_number(self, args: Any, kwargs: Any) -> bool | None:
        """Whether the model's code has a rate of dropout; None if the model does not run without data."""
        if not self.tried:
            self.tried = True
            with contextlib.suppress(ApplyError):
                self.by_number = bool(self._whole_shapes(args, kwargs))
        return self.by_number

    def _outermost(self, module: Any, args: Any, kwargs: Any) -> Callable[[], None] | None:
        if self.rests and module is self.model:
            self._rest(args, kwargs)
        if self._may_drop(module, args, kwargs) is False:
            return None
        if module is self.model:
            self.given, self.whole = (args, kwargs), None
        self.as_first += 1
        return draw_as_first(self.group, self.place)

    def _found(self, place: Place, tensor: torch.Tensor) -> Shared | None:
        if place not in self.shared:
            if self.whole is None and self.given is not None:
                self.whole = self._whole_shapes(*self.given)
            self.shared[place] = self._how_shared(place, tensor)
        return self.shared[place]

    def _how_shared(self, place: Place, tensor: torch.Tensor) -> Shared | None:
        shape, whole = tuple(tensor.shape), (self.whole or {}).get(place, ())
        longer = [n for n, (one, other) in enumerate(zip(shape, whole)) if one != other]
        if shape == whole:
            return None
        if len(shape) == len(whole) and len(longer) == 1:
            own = torch.tensor([shape[longer[0]]], device=tensor.device)
            borders = borders_of([int(length) for length in ProcessGroup(self.group).all_gather(own)])
            if borders[-1] == whole[longer[0]]:
                return longer[0], borders
        raise ApplyError(
            f"{place[0] or 'the model'}: its dropout acts on a tensor of {shape}, which may be whole or a share; set dropout "
            "to 0"
        )

    def _whole_shapes(self, args: Any, kwargs: Any) -> dict[Place, tuple[int, ...]]:
        """Place of each dropout in the whole model -> shape of its tensor, from a run without data."""
        found: dict[Place, tuple[int, ...]] = {}

        def note(place: Place, tensor: torch.Tensor) -> None:
            found[place] = tuple(tensor.shape)

        model = assemble_model(self.skeleton, META)[0].train()
        now = dict(self.model.named_modules())
        for path, module in model.named_modules():
            rates = {name: vars(now.get(path, module)).get(name, 0.0) for name in dropout_rates(module)}
            module.__dict__.update({name: 0.0 if skips_layers(name, rate) else rate for name, rate in rates.items()})
        _Watch(note, 0).attach(model)
        with torch.random.fork_rng(devices=[]):  # the model's code may draw random numbers on the CPU
            try:
                tried_without_data(lambda: run_without_data(model, args, kwargs))
            except Exception as error:  # raised by the model's own code without data
                self._in_half(model, args, kwargs, error)
        return found

    @staticmethod
    def _in_half(model: torch.nn.Module, args: Any, kwargs: Any, error: Exception) -> None:
        """Run again in bfloat16, which all operations support without data, grouped products too."""
        try:
            run_without_data(model.to(torch.bfloat16), args, kwargs)
        except Exception:
            raise ApplyError(f"the places of its dropout cannot be found ({error}); set dropout to 0") from error


def draw_as_first(
    group: dist.ProcessGroup | None, device: torch.device, generator: torch.Generator | None = None
) -> Callable[[], None]:
    """Take over the first process's random state. Returns a function that restores this process's own state.

    A state that is the first process's own goes on from there.

    Args:
        generator: if None, torch's own of this process and of the device.
    """
    generators = [torch.default_generator] if generator is None else [generator]
    if generator is None and device.type == "cuda":
        generators.append(torch.cuda.default_generators[device.index or 0])
    own = [one.get_state() for one in generators]
    first = []
    for state in own:
        sent = state.to(device, copy=True)
        dist.broadcast(sent, group=group, group_src=0)
        first.append(sent.cpu())
    _set(generators, first)

    def leave() -> None:
        if not all(map(torch.equal, own, first)):
            _set(generators, own)

    return leave


def _set(generators: list[torch.Generator], states: list[torch.Tensor]) -> None:
    for one, state in zip(generators, states):
        one.set_state(state)
