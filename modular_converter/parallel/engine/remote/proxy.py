"""The caller's model object while its weights are on the ranks: its modules run there.

Its class becomes a subclass of its own class, so ``isinstance``, configuration and attributes are unchanged. Only calls
of modules, and the library's ``generate``, run on the ranks. All other methods and properties run here, on whole values:
parameters are tensors whose numbers are fetched when code reads them, and integers are those of the whole model.

The wrapper of peft around such a model calls it as before, and saves adapters.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Item
from modular_converter.parallel.engine.base.adapted import (
    AROUND,
    keep_adapters,
    let_go,
    path_of_base,
    refuse_new_scales,
    refuse_saving_adapters,
    scales_of,
    state_of_adapters,
    wrap,
)
from modular_converter.parallel.engine.base.call_state import ModelThere, pickled, settings_changes, settings_of
from modular_converter.parallel.engine.base.memory import MemoryFigures, without_devices
from modular_converter.parallel.engine.base.preflight import CHANGE_WEIGHTS, refusals, refuse
from modular_converter.parallel.engine.base.trials_of_model import UNPROVEN, refuse_unproven
from modular_converter.parallel.engine.base.watched_state import GONE, StateChange, WatchedState
from modular_converter.parallel.engine.base.weights_there import (
    NO_GRADIENTS,
    StoredThere,
    is_there,
    refuse_backward,
    weight_there,
)
from modular_converter.parallel.engine.checkpoint.model_files import save_model, saved_names, saves_as_library
from modular_converter.parallel.engine.remote.caller_state import CallerState
from modular_converter.parallel.engine.remote.placement import Placement
from modular_converter.parallel.engine.remote.remote_values import StoredTensor, without_marks
from modular_converter.parallel.errors import ApplyError, PlanError, one_line
from modular_converter.parallel.inference.generation import (
    GENERATE_BATCH,
    MANAGERS,
    NO_MANAGER,
    checked_batches,
)
from modular_converter.parallel.int8 import is_unpacked, pack_layers, packed_state
from modular_converter.parallel.modules import HOOKS
from modular_converter.parallel.plans.resolve import names_of_tied
from modular_converter.parallel.shard.forwards import never_traced
from modular_converter.parallel.torch_private import DisableTorchFunctionSubclass, pytree


# A model on ranks refuses more methods: it has no gradients, and takes one call at a time.
_NOT_ON_RANKS = (*CHANGE_WEIGHTS, "gradient_checkpointing_enable", "activation_checkpointing_enable")

# What it would switch off is off on the ranks.
_WITHOUT_EFFECT = ("gradient_checkpointing_disable",)

OUT_OF_REACH = (
    "{name} would not reach the weights, which are on the ranks; take the model back with .cpu(), call {name}, and "
    "parallelize it again"
)
_UNREACHED = "{name} would not reach the ranks; take the model back with .cpu() before you set it"
_DROPPED = "the model to which this {name} belongs is gone, and its weights with it; keep the model"
_UNHEARD = "this {name} runs on the ranks, where no hook of yours is called; put the hook on the parallelized model"
_LATE_HOOK = (
    "generate runs on the ranks, which have the hooks of the model of the moment at which they got it, and one was put on it "
    "or removed since; take the model back with .cpu(), change its hooks, and parallelize it again"
)
# The methods whose arguments reach the forward.
_CALLED = ("forward", "generate", GENERATE_BATCH)
_CHILDREN = ("_modules", "_parameters")
# The entries of a module that run it: without its hooks, and with them.
_CALLS = ("forward", "_call_impl")
# That of `load_state_dict`, which would else quote a refusal in an error of its own.
_LOADS = "_load_from_state_dict"
# Entries of the model itself that belong to its placement.
_OWN = ("_placement", "_homes", "_open", "_scales", "_own_class", "_trained", AROUND, UNPROVEN)
# Not in the model: the state has the model's own dictionary, and would keep a dropped model and its ranks alive.
_STATES: weakref.WeakKeyDictionary[torch.nn.Module, CallerState] = weakref.WeakKeyDictionary()


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
        for name, tied in names_of_tied(self).items():  # type: ignore[arg-type]
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
            return placement.whole_one(name) if is_there(state[name]) else state[name].detach()

        save_model(self, state, fetch, Path(folder), ranks, max_shard_size)

    def train(self, mode: bool = True) -> Any:
        if mode:
            raise PlanError(NO_GRADIENTS)
        own: Any = super()
        return own.train(False)  # modules inside may have been put into training mode

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
    """The children, weights or hooks of a module on the ranks; refuses replacements, such as peft's."""

    def __init__(self, content: dict[str, Any], refusal: str) -> None:
        super().__init__(content)
        self.refusal = refusal

    def _refused(self, *changed: Any, **more: Any) -> Any:
        raise PlanError(self.refusal.format(name=next(iter(changed or more), "this")))

    __setitem__ = __delitem__ = __ior__ = setdefault = update = pop = popitem = clear = _refused


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
                    made[id(parameter)] = _weight(placement, item)
                homes.append((module._parameters, leaf, parameter))  # dictionaries, which keep no module
                module._parameters[leaf] = made[id(parameter)]
    _call_on_ranks(model)
    # By path: with the model's own dictionary in it, the list would keep a dropped model alive.
    opened = model.__dict__["_open"] = []
    for path, module in list(model.named_modules()):
        unheard = _UNHEARD.format(name=type(module).__name__)
        refusal = dict.fromkeys(_CHILDREN, _UNREACHED) | dict.fromkeys(HOOKS if path else (), unheard)
        opened += [(path, name, vars(module)[name]) for name in refusal]
        vars(module).update({name: _Fixed(vars(module)[name], text) for name, text in refusal.items()})
    placement.settings = pickled(settings_of(model))
    model.__dict__["_placement"] = placement
    model.__dict__["_homes"] = homes
    model.__dict__["_scales"] = scales_of(model)
    model.__dict__["_own_class"] = type(model)
    keep_adapters(model, PlanError, OUT_OF_REACH)
    _watch(model, placement)
    model.__class__ = _routed_class(type(model))  # type: ignore[arg-type]


def _watch(model: torch.nn.Module, placement: Placement) -> None:
    """Compare the model's state from now on; on the ranks, and so here, it is in evaluation mode."""
    model.__dict__["_trained"] = [path for path, module in model.named_modules() if module.training]
    for module in model.modules():
        module.training = False
    state = _STATES[model] = CallerState(model, placement, _OWN)
    modules, there = weakref.ref(state.modules), weakref.ref(placement)

    def fetch(one: StoredTensor) -> torch.Tensor:
        found = there()
        if found is None:
            raise PlanError(f"the model to which {one.where} belongs is gone; keep the model")
        return found.stored(one)

    def take(stored: list[StateChange]) -> None:
        watched = modules()
        for one in stored:
            if watched is not None and one.value is not GONE:
                watched.accept(one.path, one.name, without_marks(one.value, fetch), one.is_buffer)

    placement.take_stored = take


def _weight(placement: Placement, item: Item) -> torch.nn.Parameter:
    place = torch.device(placement.session.devices[0])
    empty = torch.empty(item.shape, dtype=item.kept, device="meta")
    # A cycle would keep a dropped model, and its ranks, until the next collection of garbage.
    there = weakref.ref(placement)

    def fetch() -> torch.Tensor:
        found = there()
        if found is None:
            raise PlanError(f"the model to which {item.name} belongs is gone, and its weights with it; keep the model")
        return found.fetched(item.name).to(place)

    return weight_there(empty, item.name, item.gradient, place, fetch)


def _call_on_ranks(model: torch.nn.Module) -> None:
    """Let calls of the modules inside a model run on the ranks; those without weights run here as they are."""
    root, inside = weakref.ref(model), never_traced(_inside)
    refuse_loads = functools.partial(refuse, PlanError, OUT_OF_REACH.format(name="load_state_dict"))
    for path, module in model.named_modules():
        if module is model:
            continue
        if next(module.parameters(), None) is not None:
            name = type(module).__name__
            module.__dict__.update({call: functools.partial(inside, root, path, name, call) for call in _CALLS})
            if any(map(is_there, module._parameters.values())):
                module.__dict__[_LOADS] = refuse_loads


def _inside(root: weakref.ref[Any], path: str, kind: str, call: str, *args: Any, **kwargs: Any) -> Any:
    """Run a module inside a model on the ranks: its forward, or itself with its hooks."""
    model = root()
    if model is None:
        raise PlanError(_DROPPED.format(name=kind))
    try:
        return _call(model, "forward" if call == "forward" else "__call__", args, kwargs, path)
    except RuntimeError as error:  # of an operation, such as a product of a whole tensor and a share
        if not model._placement.divides(path):
            raise
        raise PlanError(
            f"this {kind} computes with a share on each rank, and its inputs may have to be shares, too ({one_line(error)}); "
            "call the module around it"
        ) from error


def give_back(model: Any) -> torch.nn.Module:
    """Restore a parallelized model with its whole weights on the CPU, and end its ranks.

    Raises ``RankError`` if the ranks have ended already, and the weights are lost.
    """
    placement = model._placement
    _fetch_stored(_STATES[model].modules)
    placement.give_back()
    model.__class__ = model.__dict__.pop("_own_class")
    inside = dict(model.named_modules())
    for path, name, children in model.__dict__.pop("_open"):
        inside[path].__dict__[name] = children
    for scope, leaf, parameter in model.__dict__.pop("_homes"):
        scope[leaf] = parameter
    for module in model.modules():
        for name in (*_CALLS, _LOADS):
            module.__dict__.pop(name, None)
    for path in model.__dict__.pop("_trained"):
        inside[path].training = True
    del model.__dict__["_placement"], model.__dict__["_scales"], _STATES[model]
    model.__dict__.pop(UNPROVEN, None)
    let_go(model)
    pack_layers(model)
    without_devices(model)
    found: torch.nn.Module = model
    return found


def _fetch_stored(state: WatchedState) -> None:
    """Bring tensors that calls have stored on modules; those that are shares of the ranks are lost with them."""
    for path, name, value in zip(state.paths, state.names, list(state.values)):
        if isinstance(value, StoredThere):
            try:
                found = value.clone()
            except ApplyError:
                found = None
            state.by_path[path][name] = found


@functools.lru_cache(maxsize=256)
def _routed_class(own: type[Any]) -> type[Any]:
    body: dict[str, Any] = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
    for name in _CALLED:
        if name == "forward" or _runs_there(own, name):
            body[name] = _route(name, getattr(own, name))
    body |= refusals(own, _NOT_ON_RANKS, PlanError, OUT_OF_REACH)
    body |= refusals(own, MANAGERS, PlanError, NO_MANAGER)
    body |= {name: _nothing for name in _WITHOUT_EFFECT if hasattr(own, name)}
    return type(own.__name__, (Parallelized, own), body)


def _nothing(self: Any) -> None:
    """Nothing: see ``_WITHOUT_EFFECT``."""


def _runs_there(own: type[Any], name: str) -> bool:
    """Whether a method that generates runs on the ranks: the library's, and one that prepares a call of the library's.

    A loop of the caller's own runs here, as any other method.
    """
    owner = next((kind for kind in own.__mro__ if name in vars(kind)), None)
    if owner is None or owner.__module__.startswith("transformers."):
        return owner is not None
    code = getattr(inspect.unwrap(vars(owner)[name]), "__code__", None)
    return code is None or bool({"super", "GenerationMixin"}.intersection(code.co_names))


def _route(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def routed(self: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_unproven(self, own, args, kwargs)
        return _call(self, name, args, kwargs)

    return never_traced(routed)


def _call(model: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], path: str = "") -> Any:
    """Run a method of a model, or of a module inside it, on the ranks."""
    placement = model._placement
    if method == GENERATE_BATCH:
        devices = placement.session.devices
        args, kwargs = (), checked_batches(type(model), args, kwargs, devices.count("cpu"))
    if method not in ("forward", "__call__") and any(hooks != then for hooks, then in _STATES[model].hooks):
        raise PlanError(_LATE_HOOK)
    _send_settings(model)
    args = tuple(_there(value, placement) for value in args)
    found = placement.call(method, args, {key: _there(value, placement) for key, value in kwargs.items()}, path)
    if torch.is_grad_enabled() and method != "generate" and _has_gradient(model, args, kwargs):
        for one in pytree.tree_leaves(found):
            if isinstance(one, torch.Tensor):
                refuse_backward(one)
    return found


def _has_gradient(model: Any, args: Any, kwargs: Any) -> bool:
    with (
        DisableTorchFunctionSubclass()
    ):  # 0.05 ms for the weights of 787 frozen modules, which take 2 ms with it and a walk
        if any(scope[leaf].requires_grad for scope, leaf, _ in model._homes):
            return True
    return any(isinstance(one, torch.Tensor) and one.requires_grad for one in pytree.tree_leaves((args, kwargs)))


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
    """Send the ranks the changes since the last call. The comparison of settings takes 13 us for a Llama."""
    refuse_new_scales(model._scales)
    _STATES[model].send(model._placement.skeleton)
    settings, placement = settings_of(model), model._placement
    data = pickled(settings)
    if data != placement.settings:
        changes = list(settings_changes(pickle.loads(placement.settings), settings))
        placement.send("settings", placement.number, changes)
        placement.settings = data


class AdaptedOnRanks:
    """The methods that the wrapper has in addition to its own."""

    get_base_model: Callable[[], Any]

    def __enter__(self) -> Any:
        self.get_base_model().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        base = self.get_base_model()
        if hasattr(base, "_placement"):  # it was not taken back inside the block
            base.__exit__(*exception)

    def save_pretrained(self, folder: str | os.PathLike[str], **more: Any) -> None:
        """Save the adapters as peft does; only their weights are gathered from the ranks."""
        own: Any = super()
        base = self.get_base_model()
        placement: Placement = base._placement
        prefix = f"{path_of_base(self, base)}."  # type: ignore[arg-type]
        first = names_of_tied(base)
        state = torch.nn.Module.state_dict(base, prefix=prefix, keep_vars=True)

        def fetch(name: str) -> torch.Tensor:
            own = state[name]
            return placement.whole_one(first[name.removeprefix(prefix)]) if is_there(own) else own.detach()

        own.save_pretrained(folder, state_dict=state_of_adapters(self, state, fetch, **more), **more)


def wrap_on_ranks(wrapper: Any, base: Any) -> Any:
    """The wrapper, around a model whose weights are on the ranks."""
    wrap(wrapper, base, AdaptedOnRanks, PlanError, OUT_OF_REACH)
    return wrapper
