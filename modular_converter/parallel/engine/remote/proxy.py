"""The caller's model object while its weights are on the ranks: its methods run there.

Its class becomes a subclass of its own class, so ``isinstance``, configuration and attributes are unchanged; parameters
become meta tensors of the same shapes.
"""

from __future__ import annotations

import functools
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from modular_converter.parallel.engine.base.adapted import (
    keep_adapters,
    let_go,
    refuse_new_scales,
    refuse_saving_adapters,
    scales_of,
)
from modular_converter.parallel.engine.base.memory import MemoryFigures
from modular_converter.parallel.engine.base.refused_methods import CHANGE_WEIGHTS, refusals, refuse
from modular_converter.parallel.engine.checkpoint.save_model import save_model, saved_names, saves_as_library
from modular_converter.parallel.engine.choice.unproven_arguments import UNPROVEN, refuse_unproven
from modular_converter.parallel.engine.remote.config_changes import pickled, settings_changes, settings_of
from modular_converter.parallel.engine.remote.placement import Placement
from modular_converter.parallel.engine.remote.what_may_leave import ModelThere
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.resolve import first_names
from modular_converter.parallel.quantised.torchao_int8 import is_unpacked, pack_layers, packed_state


# A model on ranks refuses more methods: it has no gradients, and takes one call at a time.
_NOT_ON_RANKS = (*CHANGE_WEIGHTS, "gradient_checkpointing_enable", "generate_batch")

OUT_OF_REACH = (
    "{name} would not reach the weights, which are on the ranks; take the model back with .cpu(), call {name}, and "
    "parallelize it again"
)
_UNREACHED = "{name} would not reach the ranks; take the model back with .cpu() before you set it"
_INSIDE = "the weights of this {name} are on the ranks; call the parallelized model itself, or its methods"
_UNHEARD = "this {name} runs on the ranks, where no hook of yours is called; put the hook on the parallelized model"
# The methods whose arguments reach the forward.
_CALLED = ("forward", "generate")
_CHILDREN = ("_modules", "_parameters")
# The methods that put hooks on a module.
_HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)


class Parallelized(MemoryFigures):
    """The methods that a model on ranks has in addition to its own."""

    _placement: Placement

    def _figures(self) -> dict[str, dict[str, Any]]:
        return self._placement.memory()

    def ranks_run(self) -> bool:
        """Whether all ranks run, without waiting for a call that they are in."""
        session = self._placement.session
        return not session.ended and all(rank.process.is_alive() for rank in session.ranks)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: Any, *exception: object) -> None:
        if not isinstance(self, Parallelized):  # it was taken back inside the block
            return
        if kind is not None and not issubclass(kind, Exception) or self._placement.session.ended:
            self._placement.end()
        else:
            give_back(self)

    @property
    def device(self) -> torch.device:
        """The best device for inputs; other devices work too."""
        return torch.device(self._placement.session.devices[0])

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The whole weights, gathered from the ranks, on the CPU."""
        found = super().state_dict(*args, **kwargs)  # type: ignore[misc]
        prefix = kwargs.get("prefix", "")
        whole = {item.name: tensor for item, tensor in self._placement.whole()}
        for name, tied in first_names(self).items():  # type: ignore[arg-type]
            if prefix + name in found and tied in whole:
                found[prefix + name] = whole[tied]
        packed_state(self, found, prefix)  # type: ignore[arg-type]
        return found

    def save_pretrained(
        self, folder: str | os.PathLike[str], max_shard_size: int | str | None = None, **more: Any
    ) -> None:
        """Save the model; this process holds one file's weights at a time.

        Args:
            max_shard_size: of a file, such as ``"2GB"``; if None, at most 5 GB and one rank's part of the model.
            more: other arguments of the library's method; with them this process holds the whole model.
        """
        placement = self._placement
        refuse_saving_adapters(self, "take the model back with .cpu()")  # type: ignore[arg-type]
        own: Any = super()
        if more or is_unpacked(self) or not saves_as_library(self.__dict__["_own_class"]):  # type: ignore[arg-type]
            sized = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
            own.save_pretrained(folder, **sized, **more)
            return
        state = saved_names(self)  # type: ignore[arg-type]
        ranks = len(placement.session.devices)

        def fetch(name: str) -> torch.Tensor:
            return placement.whole_one(name) if state[name].is_meta else state[name].detach()

        save_model(self, state, fetch, Path(folder), ranks, max_shard_size)

    def train(self, mode: bool = True) -> Any:
        if mode:
            raise PlanError(
                "a model on ranks of parallelize runs without gradients; to train, start your script with torchrun "
                "and call parallelize there"
            )
        return self

    def eval(self) -> Any:
        return self

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Restore the whole model, then call the method: ``.cpu()``, ``.cuda()``, ``.to()``, ``.half()`` and others."""
        give_back(self)
        return self._apply(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (torch.nn.Module, torch.nn.Parameter)):
            raise PlanError(_UNREACHED.format(name=name))
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PlanError("a model on ranks cannot be pickled or copied; take it back with .cpu() first")


class _Fixed(dict[str, Any]):
    """The children or weights of a module on the ranks; refuses replacements, such as peft's."""

    def __setitem__(self, name: str, value: Any) -> None:
        raise PlanError(_UNREACHED.format(name=name))

    def __delitem__(self, name: str) -> None:
        raise PlanError(_UNREACHED.format(name=name))


def install(model: torch.nn.Module, placement: Placement) -> None:
    """Turn an empty model into the caller's side of a placement."""
    made: dict[int, torch.nn.Parameter] = {}
    kept = {id(tensor): item for tensor, item in zip(placement.tensors, placement.skeleton.items) if item.parameter}
    homes = []
    for module in model.modules():
        for leaf, parameter in module._parameters.items():
            if parameter is not None and id(parameter) in kept:
                item = kept[id(parameter)]
                if id(parameter) not in made:
                    empty = torch.empty(item.shape, dtype=item.kept, device="meta")
                    made[id(parameter)] = torch.nn.Parameter(empty, requires_grad=item.gradient)
                homes.append((module._parameters, leaf, parameter))
                module._parameters[leaf] = made[id(parameter)]
    for module in model.modules():
        if module is not model:
            name = type(module).__name__
            module.__dict__["forward"] = functools.partial(refuse, PlanError, _INSIDE.format(name=name))
            module.__dict__.update(
                dict.fromkeys(_HOOKS, functools.partial(refuse, PlanError, _UNHEARD.format(name=name)))
            )
    model.__dict__["_open"] = [
        (module.__dict__, name, module.__dict__[name]) for module in model.modules() for name in _CHILDREN
    ]
    for scope, name, children in model.__dict__["_open"]:
        scope[name] = _Fixed(children)
    placement.settings = pickled(settings_of(model))
    model.__dict__["_placement"] = placement
    model.__dict__["_homes"] = homes
    model.__dict__["_scales"] = scales_of(model)
    model.__dict__["_own_class"] = type(model)
    model.__class__ = _routed_class(type(model))  # type: ignore[arg-type]
    keep_adapters(model, PlanError, OUT_OF_REACH)


def give_back(model: Any) -> torch.nn.Module:
    """Restore a parallelized model with its whole weights on the CPU, and end its ranks.

    Raises ``RankError`` if the ranks have ended already, and the weights are lost.
    """
    placement = model._placement
    placement.give_back()
    model.__class__ = model.__dict__.pop("_own_class")
    for scope, name, children in model.__dict__.pop("_open"):
        scope[name] = children
    for scope, leaf, parameter in model.__dict__.pop("_homes"):
        scope[leaf] = parameter
    for module in model.modules():
        for name in ("forward", *_HOOKS):
            module.__dict__.pop(name, None)
    del model.__dict__["_placement"], model.__dict__["_scales"]
    model.__dict__.pop(UNPROVEN, None)
    let_go(model)
    pack_layers(model)
    found: torch.nn.Module = model
    return found


@functools.lru_cache(maxsize=256)
def _routed_class(own: type[Any]) -> type[Any]:
    body: dict[str, Any] = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
    for name in _routed_names(own):
        body[name] = _route(name, getattr(own, name))
    body |= refusals(own, _NOT_ON_RANKS, PlanError, OUT_OF_REACH)
    return type(own.__name__, (Parallelized, own), body)


def _routed_names(own: type[Any]) -> list[str]:
    """``forward``, ``generate``, and the public methods that the model's own code adds to the library's base classes."""
    machinery = [kind for kind in own.__mro__ if not _is_model_code(kind)]
    known = {name for kind in machinery for name in vars(kind)}
    found = {"forward"}
    for kind in own.__mro__:
        if _is_model_code(kind):
            found |= {name for name, value in vars(kind).items() if _is_method(name, value) and name not in known}
    if hasattr(own, "generate"):
        found.add("generate")
    return sorted(found)


def _is_method(name: str, value: Any) -> bool:
    """Whether an attribute is a public method of instances: static and class methods need no weights."""
    if name.startswith("_") or isinstance(value, (staticmethod, classmethod)) or not callable(value):
        return False
    return hasattr(value, "__code__") or hasattr(value, "__wrapped__")


def _is_model_code(kind: type[Any]) -> bool:
    module = kind.__module__
    return not module.startswith(("torch.", "builtins")) and (
        not module.startswith("transformers.") or module.startswith("transformers.models.")
    )


def _route(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def routed(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name in _CALLED:
            refuse_unproven(self, own, args, kwargs)
        _send_settings(self)
        args = tuple(_there(value, self._placement) for value in args)
        return self._placement.call(name, args, {key: _there(value, self._placement) for key, value in kwargs.items()})

    return routed


def _there(value: Any, placement: Placement) -> Any:
    """An argument, or its stand-in if it is a model on the ranks, such as the assistant of `generate`."""
    if not isinstance(value, Parallelized):
        return value
    if value._placement.session is not placement.session:
        raise PlanError(
            f"this {type(value).__name__} is on other ranks; put both on the same ranks: ranks = Session(...), "
            "parallelize(model, session=ranks), parallelize(other, session=ranks)"
        )
    _send_settings(value)
    return ModelThere(value._placement.number)


def _send_settings(model: Any) -> None:
    """Send the ranks the changes of the settings since the last call. The comparison takes 13 us for a Llama."""
    refuse_new_scales(model._scales)
    settings, placement = settings_of(model), model._placement
    data = pickled(settings)
    if data != placement.settings:
        placement.send_settings(data, list(settings_changes(pickle.loads(placement.settings), settings)))
