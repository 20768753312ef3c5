"""The methods that a model sharded over a process group has in addition to its own."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.base.adapted import let_go, refuse_saving_adapters
from modular_converter.parallel.engine.base.attention_heads import wants_attentions
from modular_converter.parallel.engine.base.memory import MemoryFigures, usage, without_devices
from modular_converter.parallel.engine.base.trials_of_model import UNPROVEN
from modular_converter.parallel.engine.checkpoint.model_files import save_model, saved_names, saves_as_library
from modular_converter.parallel.engine.group.gradients import WHOLE_BEFORE, norm_of, refuse_other_type, scale_gradients
from modular_converter.parallel.engine.group.held_weights import release, show_sizes
from modular_converter.parallel.engine.group.kept_gathered import WATCHED
from modular_converter.parallel.engine.group.same_calls import CALLS, called_by_all
from modular_converter.parallel.engine.group.same_settings import compared
from modular_converter.parallel.engine.group.share_tensors import for_compiled
from modular_converter.parallel.engine.group.spread import each_once, gathered_weights, spread_of
from modular_converter.parallel.engine.group.torch_patches import PATCHES
from modular_converter.parallel.engine.group.training_checkpoint import InLayout, Trained
from modular_converter.parallel.engine.group.whole_state import (
    LoadedState,
    load_whole_state,
    other_arguments,
    saved_by_first,
    whole_state,
    whole_tensors,
)
from modular_converter.parallel.errors import MAKE_WHOLE, ApplyError, NotHere
from modular_converter.parallel.int8 import is_unpacked, pack_layers, packed_state
from modular_converter.parallel.shard.apply import Applied, undo
from modular_converter.parallel.shard.collectives import ProcessGroup, forget_entered
from modular_converter.parallel.shard.forwards import forward_of, uncheck_ids
from modular_converter.parallel.torch_private import in_no_pass, pytree


# What torch's wrappers have -> what to write without data ranks, and with them.
_OF_WRAPPERS = {
    "module": ("take the model itself",) * 2,
    "no_sync": (
        "gradients are whole in each backward; leave it out",
        "call model.set_requires_gradient_sync(False) before the forwards whose gradients are added, and with True before the last",
    ),
}


def _everyone(model: Any) -> ProcessGroup:
    found: ProcessGroup = model._grid.everyone
    return found


class Sharded(InLayout, MemoryFigures):
    """A model of which each process has a share."""

    _applied: Applied

    def __deepcopy__(self, memo: Any) -> Any:
        raise ApplyError(
            "a sharded model cannot be copied; copy the result of full_state_dict(), or call unshard() first"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise ApplyError(
            "a sharded model cannot be pickled or copied, since a process has a part of it: save the result of "
            "full_state_dict(), or take save_pretrained"
        )

    def __getattr__(self, name: str) -> Any:
        if name in _OF_WRAPPERS and name not in self.__dict__["_modules"]:
            data = self.__dict__["_grid"].data is not None
            raise NotHere(
                f"a model in a layout is no DistributedDataParallel, and has no {name}: {_OF_WRAPPERS[name][data]}"
            )
        return super().__getattr__(name)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "peft_config":  # the last step when peft puts adapters into a model
            raise ApplyError(
                f"adapters would be made only for this process's share; {MAKE_WHOLE}, add them, and parallelize again"
            )
        super().__setattr__(name, value)

    def get_parameter(self: Any, target: str) -> Any:
        """A parameter by name, in the form for optimizers; ``module.weight`` is this process's tensor."""
        path, _, leaf = target.rpartition(".")
        found = self.get_submodule(path)._parameters.get(leaf)
        if found is None:
            raise AttributeError(f"{type(self).__name__} has no parameter {target!r}")
        return found

    def named_parameters(self: Any, *args: Any, **kwargs: Any) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The parameters in the form for optimizers, at any time but within a forward or backward."""
        idle = isinstance(self, FSDPModule) and in_no_pass(self)
        stored = gathered_weights(self) if idle else {}
        for name, one in super().named_parameters(*args, **kwargs):  # type: ignore[misc]
            yield name, stored.get(id(one), one)

    @called_by_all(_everyone)
    def unshard(self: Any) -> Any:
        """Make the model whole again, in place, on every rank; all ranks must call it, once: its own class has no such method.

        With data ranks it is refused; use ``full_state_dict`` there.
        """
        applied = self._applied
        show_sizes(self.__dict__.pop("_hidden_sizes"))
        self.__class__ = self.__dict__.pop("_own_class")
        let_go(self)
        PATCHES.leave(self)
        self.__dict__.pop(WATCHED, None)
        self.__dict__.pop(CALLS, None)
        self.__dict__.pop("_dropout").detach()
        for parts in ("_sequence", "_attentions"):
            if parts in self.__dict__:
                self.__dict__.pop(parts).detach()
        release(self.__dict__.pop("_held_modules"))
        uncheck_ids(self.__dict__.pop("_checked"))
        del self.__dict__["_applied"], self.__dict__["_grid"]
        self.__dict__.pop(UNPROVEN, None)
        whole = undo(applied)
        for one in whole.parameters():
            vars(one).pop(WHOLE_BEFORE, None)
        pack_layers(whole)
        without_devices(whole)
        return whole

    @called_by_all(_everyone)
    def full_state_dict(self: Any, first_only: bool = False) -> dict[str, torch.Tensor]:
        """The whole weights on the CPU, as the unsharded model's ``state_dict``; all ranks must call it.

        Args:
            first_only: other ranks than the first get an empty dict, and hold at most one whole weight at a time.
        """
        kept = self._grid.everyone.rank == 0 or not first_only
        found = whole_state(self, kept)
        if kept:
            packed_state(self, found)
        return found

    @called_by_all(_everyone)
    def load_full_state_dict(self, state: Mapping[str, torch.Tensor] | None, strict: bool = True) -> LoadedState:
        """Take this rank's shares from whole weights, as ``load_state_dict`` of one device; all ranks must call it.

        Args:
            state: if it is None on a rank, the first rank sends its weights to all, one by one.
            strict: whether the state must have each name of the model, and no other.

        Raises ``ApplyError`` with the names that are missing or unknown.
        """
        return load_whole_state(self, state, self._grid.everyone, strict)

    @called_by_all(_everyone)
    def clip_grad_norm_(self: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale all gradients so that their norm is at most ``max_norm``, as if the model were whole.

        Shares count once each and whole parameters once; all ranks must call it.

        Returns:
            The norm before, the same on every rank.
        """
        weights = each_once(self)
        norm = norm_of(weights, norm_type, self._grid.group, self._grid.place)
        scale_gradients(weights, norm, max_norm)
        return norm

    @called_by_all(lambda _: ProcessGroup(None))
    def save_pretrained(
        self, folder: str | os.PathLike[str], max_shard_size: int | str | None = None, **more: Any
    ) -> None:
        """Save the model from the first process, which holds one file's weights at a time; all processes must call it.

        Args:
            max_shard_size: of a file, such as ``"2GB"``; if None, at most 5 GB and one process's part of the model.
            more: other arguments of the library's method; with them the first process holds the whole model.
        """
        refuse_saving_adapters(self, MAKE_WHOLE)  # type: ignore[arg-type]
        more = other_arguments(more)
        if is_unpacked(self):  # type: ignore[arg-type]
            raise ApplyError(
                f"quantised weights can only be saved from the whole model: {MAKE_WHOLE}, and save it then"
            )
        kind = self.__dict__["_own_class"]
        if not hasattr(kind, "save_pretrained"):
            raise ApplyError(
                f"{kind.__name__} has no save_pretrained: give what full_state_dict(first_only=True) returns to torch.save on the "
                "first process, or take save_checkpoint"
            )
        own: Any = super()
        # Not the first rank of the group: on a mesh of several dimensions each replica has a first rank.
        first = dist.get_rank() == 0

        def save() -> None:
            if more or not saves_as_library(kind):
                state = self.full_state_dict(first_only=True)
                if first:
                    sized = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
                    own.save_pretrained(folder, state_dict=state, is_main_process=True, **sized, **more)
            else:
                spreads = {one.name: one for one in spread_of(self)}  # type: ignore[arg-type]
                whole, fetch = whole_tensors(saved_names(self), spreads)  # type: ignore[arg-type]
                target = Path(folder) if first else None
                save_model(self, whole, fetch, target, self._grid.group.size, max_shard_size)

        saved_by_first(self, save)

    @property
    def is_distributed_loading_by_transformers(self: Any) -> bool:
        """For transformers' ``Trainer``, which then neither moves nor wraps the model; it needs DTensors for the norm."""
        return all(isinstance(one, DTensor) for one in self.parameters())

    def _trained(self: Any) -> Trained:
        return Trained.of(self)

    def _figures(self) -> dict[str, dict[str, Any]]:
        return {str(self._grid.place): usage(self._grid.place)}


def of_same_type(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method such as ``to``, which may change neither type nor device: ``fully_shard`` keeps copies of the weights."""

    @functools.wraps(own)
    def applied(self: Any, change: Callable[[torch.Tensor], torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        refuse_other_type(change, next(self.parameters()))
        return own(self, change, *args, **kwargs)

    return applied


def until_all_are_done(own: Callable[..., Any]) -> Callable[..., Any]:
    """A ``generate`` that continues until all data ranks are done: each forward gathers weights from all data ranks."""
    if "synced_gpus" not in inspect.signature(own).parameters:
        return own

    @functools.wraps(own)
    def synced(self: Any, *args: Any, **kwargs: Any) -> Any:
        return own(self, *args, **{"synced_gpus": True, **kwargs})

    return synced


def _refusing_spread_gradients(result: Any) -> Any:
    """What a forward returns; its gradient is no DTensor, as it would be behind ``loss + penalty`` of DTensors."""

    def refuse(gradient: Any) -> None:
        if isinstance(gradient, DTensor):
            raise ApplyError(
                "the loss was added to a number of DTensors, such as a penalty of the weights: add the whole number, "
                "penalty.full_tensor(); as a DTensor it may also be this process's part alone"
            )

    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        for one in pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.requires_grad and not one.is_leaf:
                one.register_hook(refuse)  # type: ignore[no-untyped-call]
    return result


def with_whole_heads(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method that returns the attention weights of all ranks, with gradients; inner calls return their own."""

    @functools.wraps(own)
    def whole(self: Any, *args: Any, **kwargs: Any) -> Any:
        if "_applied" not in self.__dict__:  # a whole model of the same class: `type(model).from_pretrained(folder)`
            return own(self, *args, **kwargs)
        # Code of `generate` that is in no forward calls modules as any other code does.
        marked = forward_of(self._applied.group) if is_forward and not torch.compiler.is_compiling() else nullcontext()
        with compared(self, own.__name__, args, kwargs) as show, marked:
            return show(_called(own, self, args, kwargs))

    is_forward = own.__name__ == "forward"
    return whole


@contextmanager
def _refusing_writes() -> Iterator[None]:
    """A forward; where layers are compiled, ``fully_shard`` hands on views that no code may write to."""
    try:
        yield
    except RuntimeError as error:
        if "being modified inplace" not in str(error):
            raise
        raise ApplyError(
            "a compiled layer writes in place to what it gets, which data ranks hand on as a view: let it begin with a new tensor "
            "(nn.ReLU() in place of nn.ReLU(inplace=True)), or leave compile out"
        ) from error


def _called(own: Callable[..., Any], self: Any, args: Any, kwargs: Any) -> Any:
    group = self._applied.group
    attentions = self.__dict__.get("_attentions")
    if attentions is None or attentions.active or not wants_attentions(self, args, kwargs):
        with for_compiled([self]), _refusing_writes():
            result = own(self, *args, **kwargs)
        forget_entered(group)
        return _refusing_spread_gradients(result)
    with attentions.everywhere():
        return getattr(self, own.__name__)(*args, **kwargs)
