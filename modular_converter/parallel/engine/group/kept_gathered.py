"""Weights of ``fully_shard`` between a forward and its backward, and while a derivative of the backward may need them.

After a forward that a backward may follow, some whole weights stay in memory. Modules hold their shares meanwhile: a whole
one that code has written would be gathered anew.

``fully_shard`` frees gathered weights behind a layer's backward. The graph of a gradient (``create_graph=True``) reads them
again in the next backward, where no hook of torch gathers them: the process would read freed memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from weakref import WeakSet

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.same_calls import everywhere
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import ProcessGroup, under_transforms
from modular_converter.parallel.torch_private import (
    as_root,
    current_graph_task_id,
    end_broken_iteration,
    execution_engine,
    in_no_pass,
    preserve_versions,
    pytree,
    show_shares,
    show_whole,
    weights_of_unit,
    will_engine_execute,
)


_GATHERED: WeakSet[KeptGathered] = WeakSet()
_ALL: WeakSet[KeptGathered] = WeakSet()
# Where a model has its ``SameSettings``.
WATCHED = "_same_settings"
_KEPT = "_kept_gathered"
# Key in the ``__dict__`` of a model: a weight whose gradient tells whether those of a broken backward were cleared.
_BROKEN = "_broken_gradient"


class KeptGathered:
    """From a backward with a graph to the end of the backward through it, all units of a model stay gathered.

    Args:
        model: the root of ``fully_shard``.
        reshards: its units -> whether each is freed after its forward.
        everyone: the processes that have the model.
        compiled: whether the layers are compiled, which have no second derivatives.
        is_stage: of which a step makes a forward for each micro-batch.
    """

    def __init__(
        self, model: Any, reshards: Mapping[FSDPModule, bool], everyone: ProcessGroup, compiled: bool, is_stage: bool
    ) -> None:
        self.is_stage = is_stage
        self.model, self.reshards, self.everyone = model, dict(reshards), everyone
        self.stored: dict[int, Any] = {}  # weights as optimizers have them, by their ids
        self.versions: int  # of the weights when they were gathered to stay so
        self.data: list[tuple[torch.Tensor, int]] = []  # what code has read as `weight.data`, with its version
        _ALL.add(self)
        self.layers: list[str] = []  # those that the forward, or those of a step, have entered
        self.given: dict[Any, list[Any]] = {}  # unit -> what it was given
        self.aliases: dict[Any, list[tuple[torch.Tensor, torch.Tensor, int]]] = {}
        self.paths = {one: path for path, one in model.named_modules() if one in self.reshards}
        self.shown: list[Any] = []  # whole weights of which modules hold the shares
        self.task = -1  # of the backward that runs
        self.number = 0  # of the time during which weights stay gathered
        self.handles: dict[Any, list[Any]] = {}
        for unit in self.reshards:
            module: Any = unit
            module.__dict__[_KEPT] = self
            if not compiled:
                module.register_forward_pre_hook(self._note_inputs, prepend=True, with_kwargs=True)
                module.register_forward_pre_hook(self._watch_inputs, with_kwargs=True)
                module.register_forward_hook(self._pass_writes_on)
        # A module that runs outside of the model's forward, such as the encoder's in `generate`.
        self.alone: Any = None
        for module in self._modules_of_root():
            module.register_forward_pre_hook(self._before_alone)
            module.register_forward_hook(self._after_alone, always_call=True)
        model.register_forward_pre_hook(self._before_forward, prepend=True)
        model.register_forward_hook(self._after_forward)

    def _modules_of_root(self) -> Iterator[Any]:
        """Those whose weights the model's own forward gathers, as layers gather theirs."""
        inside = {id(one) for unit in self.reshards if unit is not self.model for one in cast(Any, unit).modules()}
        for module in self.model.modules():
            if id(module) not in inside and module is not self.model and list(module.parameters(recurse=False)):
                yield module

    def _before_alone(self, module: Any, args: Any) -> None:
        if self.alone is not None or not in_no_pass(self.model):
            return
        if torch.is_grad_enabled() and any(one.requires_grad for one in module.parameters(recurse=False)):
            raise ApplyError(
                f"{type(module).__name__} was called by itself, and data ranks average gradients of its weights in a forward of "
                "the model alone: call the model, or take torch.no_grad()"
            )
        FSDPModule.unshard(as_root(self.model))  # until `reshard`
        self.alone = module

    def _after_alone(self, module: Any, args: Any, result: Any) -> None:
        if self.alone is module:
            self.alone = None
            self.model.reshard()

    def close(self) -> None:
        """Free the gathered weights."""
        if self not in _GATHERED:
            return
        _GATHERED.discard(self)
        self.number += 1
        for handle in (one for handles in self.handles.values() for one in handles):
            handle.remove()
        self.handles = {}
        for unit, reshard in self.reshards.items():
            unit.set_reshard_after_backward(True, recurse=False)
            unit.set_reshard_after_forward(reshard, recurse=False)
            unit.reshard()

    def open(self, unit: Any) -> None:
        """Keep weights from now on; called in a backward with a graph, behind the backward of a unit or before it."""
        weights = [one for one in unit.parameters() if one.requires_grad]
        if any(map(will_accumulate, weights)):
            raise ApplyError(
                "backward(create_graph=True): with data ranks, gradients of weights are averaged without a graph; take "
                "torch.autograd.grad(loss, inputs, create_graph=True) for gradients of inputs, or a layout such as tp2"
            )
        if self not in _GATHERED:
            _GATHERED.add(self)
            self.versions = self._versions()
            for one in self.reshards:
                one.set_reshard_after_backward(False, recurse=False)
                one.set_reshard_after_forward(False, recurse=False)
        if unit not in self.handles:
            self.handles[unit] = [one.register_post_accumulate_grad_hook(self._accumulated) for one in weights]

    def _accumulated(self, weight: Any) -> None:
        """Let torch average the gradients at the end of this backward, also if it reaches no output of a unit."""
        self.model._get_fsdp_state()._register_root_post_backward_final_callback()
        execution_engine.queue_callback(self.close)

    def _before_forward(self, model: Any, args: Any) -> None:
        if under_transforms():
            raise ApplyError("torch.func does not go with data ranks: take torch.autograd, or a layout such as tp2")
        end_broken(model)  # of a layer that was called alone
        # A cast of an earlier forward would bring its gradient behind the average of this one's.
        torch.clear_autocast_cache()
        if not self.is_stage:
            self.layers.clear()
        if not self.stored:  # not earlier: weights may be filled behind `fully_shard`
            self.stored = {id(one): one for one in model.parameters()}
            for one in self.stored.values():
                if isinstance(one, DTensor):
                    _cut_gradients(one)
        wrote = self._wrote_data()
        # A process sees no write to a weight of which it has no entries.
        if self in _GATHERED and any(everywhere(wrote or self.versions != self._versions(), self.everyone)):
            self.close()
        if self not in _GATHERED:
            # A forward without a backward leaves them so, and code may have written to them since.
            for unit in self.reshards:
                unit.reshard()

    def _after_forward(self, model: Any, args: Any, result: Any) -> Any:
        versions = self._versions()

        def begin(gradient: torch.Tensor | None) -> torch.Tensor | None:
            if self.task != current_graph_task_id():
                self.task = current_graph_task_id()
                self._begin_backward(versions)
            return gradient

        found = self._watched(model, result, begin)
        if torch.is_grad_enabled() and self not in _GATHERED:
            self.shown = show_shares(self.reshards)
        return found

    def _begin_backward(self, versions: int) -> None:
        """Raise ``ApplyError`` where layers, gathered anew, would take other weights than the forward has taken."""
        if versions != self._versions() or any(version != _version(data) for data, version in self.data):
            raise ApplyError(
                "weights were written between a forward and its backward, of which data ranks gather some anew: write to "
                "them after the backward, or compute the forward again"
            )
        show_whole(self.shown)
        self.shown = []

    def _note_inputs(self, unit: Any, args: Any, kwargs: Any) -> None:
        self.given[unit] = _leaves((args, kwargs)) if torch.is_grad_enabled() else []

    def _watch_inputs(self, unit: Any, args: Any, kwargs: Any) -> Any:
        """Before a layer, behind `fully_shard`, which hands its inputs on as views that no code may write to: these get aliases."""
        self.layers.append(self.paths[unit] or "all")
        pairs = zip(_leaves((args, kwargs)), self.given.pop(unit))
        of_caller = {id(view): one for view, one in pairs if _is_view(view, one)}
        self.aliases[unit] = []

        def alias(view: Any) -> Any:
            if id(view) not in of_caller:
                return view
            made = _Alias.apply(view)  # type: ignore[no-untyped-call]
            self.aliases[unit].append((of_caller[id(view)], made, made._version))
            return made

        return self._watched(unit, _mapped(alias, (args, kwargs)))

    def _pass_writes_on(self, unit: Any, args: Any, result: Any) -> None:
        """Behind a layer that has written to what it got: the caller's tensor has the numbers, and gets the gradient's way, too."""
        for one, alias, version in self.aliases.pop(unit, ()):
            if alias._version != version:
                with preserve_versions((one,)):
                    one.copy_(alias)

    def _watched(
        self, unit: Any, values: Any, begin: Callable[[torch.Tensor | None], torch.Tensor | None] | None = None
    ) -> Any:
        if not torch.is_grad_enabled():
            return values

        def backward(gradient: torch.Tensor | None) -> torch.Tensor | None:
            if begin is not None:
                begin(gradient)
            if not torch.is_grad_enabled():
                return gradient
            self.open(unit)
            return _watched_gradient(gradient, self)

        def watched(one: Any) -> Any:
            if not isinstance(one, torch.Tensor) or not one.requires_grad:
                return one
            return _behind(one, backward)

        return _mapped(watched, values)

    def _versions(self) -> int:
        return sum(map(_version, self.stored.values()))

    def _wrote_data(self) -> bool:
        """Whether code has written to the ``data`` of a weight since the last call.

        Versions tell, and not which of these tensors are alive: processes collect garbage at other times.
        """
        found = any(version != _version(data) for data, version in self.data)
        held = [number for number in range(len(self.data)) if _references(self.data, number) > _OWN_REFERENCES]
        self.data = [(self.data[number][0], _version(self.data[number][0])) for number in held]
        return found


def _is_leaf(value: Any) -> bool:
    return not isinstance(value, (tuple, list, dict))


def _is_view(view: Any, one: Any) -> bool:
    both = view is not one and isinstance(view, torch.Tensor) and isinstance(one, torch.Tensor)
    return both and view.requires_grad and view.shape == one.shape


def _leaves(values: Any) -> list[Any]:
    return pytree.tree_leaves(values, is_leaf=_is_leaf)


def _mapped(change: Callable[[Any], Any], values: Any) -> Any:
    return pytree.tree_map(change, values, is_leaf=_is_leaf)


class _Alias(torch.autograd.Function):
    """The same memory as a tensor of its own, which code may write to."""

    @staticmethod
    def forward(ctx: Any, view: torch.Tensor) -> torch.Tensor:
        return view.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def note_data(weight: torch.Tensor, data: torch.Tensor) -> None:
    """Take note that code has read ``weight.data``: what it writes there changes no version of the weight."""
    for one in _ALL:
        if id(weight) in one.stored or not one.stored:
            one.data.append((data, _version(data)))


def _version(tensor: Any) -> int:
    return int(tensor._version + getattr(tensor, "_local_tensor", tensor)._version)


def _references(data: list[tuple[torch.Tensor, int]], number: int) -> int:
    return sys.getrefcount(data[number][0])


_OWN_REFERENCES = _references([(torch.empty(0), 0)], 0)
"""Of a tensor that nobody else holds."""


def layers_entered(model: Any) -> list[str]:
    """The layers that the last forward of a model has entered, in order; a list that stays the same object."""
    found: list[str] = model.__dict__[_KEPT].layers
    return found


def keeps_gathered(unit: Any) -> bool:
    """Whether a derivative of a backward of the unit's model may be to come."""
    return unit.__dict__.get(_KEPT) in _GATHERED


def close_gathered(module: Any = None) -> None:
    """Free what is gathered: of the model of a unit, or of all models."""
    kept = list(_GATHERED) if module is None else [module.__dict__.get(_KEPT)]
    for one in kept:
        if one is not None:
            one.close()


def end_broken(model: Any, in_backward: bool = False) -> None:
    """Forget a forward or backward that an exception has ended; called where the model is in neither.

    Only a backward may be under way: one that computes a forward again, or in which an optimizer makes its steps.

    Args:
        in_backward: the exception came from a backward, whose gradients no step may use.
    """
    units = data_units_of(model) if current_graph_task_id() == -1 else []
    if units and end_broken_iteration(units, lambda: close_gathered(units[0])) and in_backward:
        _mark_broken(model, units)


def _mark_broken(model: Any, units: list[Any]) -> None:
    """Let a gradient have an entry that is no number, which goes as soon as gradients are cleared, in any way."""
    for weight in (one.sharded_param for unit in units for one in weights_of_unit(unit)):
        if weight.requires_grad and weight.to_local().numel():
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            _first_entry(weight).fill_(float("nan"))
            model.__dict__[_BROKEN] = weight
            return


def _first_entry(weight: Any) -> torch.Tensor:
    local: torch.Tensor = weight.grad.detach().to_local()
    return local[(slice(0, 1),) * local.dim()]


def refuse_broken(model: Any, optimizer: Any) -> None:
    """Raise ``ApplyError`` before a step with gradients of a backward that an exception has ended."""
    weight = model.__dict__.get(_BROKEN)
    if weight is None:
        return
    own = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if not any(id(one) in own for one in model.parameters()):
        return
    if weight.grad is not None and bool(_first_entry(weight).isnan().any()):
        raise ApplyError(
            "a step with the gradients of a backward that an exception has ended, whose averages over data ranks were not "
            "made: call zero_grad(), and a forward and backward, before it"
        )
    del model.__dict__[_BROKEN]


def data_units_of(model: Any) -> list[Any]:
    """The modules that ``fully_shard`` was called with.

    Where the modules are watched, their list is at hand: to walk a model of 1,000 modules takes half a millisecond a time.
    """
    watched = model.__dict__.get(WATCHED)
    modules = model.modules() if watched is None else watched.parts.modules
    return [module for module in modules if isinstance(module, FSDPModule)]


def _cut_gradients(weight: Any) -> None:
    """Let gradients that come to a share past ``fully_shard``, such as a penalty's, be cut as the share is, which sums both."""
    placements = weight.placements

    def cut(gradient: Any) -> Any:
        if isinstance(gradient, DTensor) and gradient.placements != placements:
            return gradient.redistribute(placements=placements)
        return gradient

    hook_gradient(weight, cut)


def hook_gradient(parameter: Any, hook: Callable[[Any], Any]) -> None:
    """Let a hook see each gradient that comes to a parameter, also if the parameter is frozen now, and trained later."""
    if not (parameter.is_floating_point() or parameter.is_complex()):
        return
    trained = parameter.requires_grad
    parameter.requires_grad_(True)  # torch takes no hooks for a frozen parameter
    torch.Tensor.register_hook(parameter, hook)  # type: ignore[no-untyped-call]  # not that of weights, which refuses the caller's
    parameter.requires_grad_(trained)


def _behind(tensor: torch.Tensor, hook: Callable[[torch.Tensor | None], torch.Tensor | None]) -> torch.Tensor:
    """The tensor, with a hook that its backward calls; no Function, whose result could not be written in place.

    A leaf is the caller's own, where the hook would stay: its view gets it.
    """
    found = tensor.view_as(tensor) if tensor.is_leaf else tensor
    found.register_hook(hook)  # type: ignore[no-untyped-call]
    return found


def _watched_gradient(gradient: torch.Tensor | None, kept: KeptGathered) -> torch.Tensor | None:
    """A gradient with a graph, whose own backward raises an error once the weights of that graph are freed."""
    if gradient is None or not gradient.requires_grad:
        return gradient
    number = kept.number

    def again(second: torch.Tensor | None) -> torch.Tensor | None:
        if number != kept.number:
            raise ApplyError(
                "the weights of this gradient's graph were freed by another backward or step: with data ranks, add the losses, "
                "and call backward once"
            )
        return _watched_gradient(second, kept) if torch.is_grad_enabled() else second

    return _behind(gradient.view_as(gradient), again)


def will_accumulate(weight: Any) -> bool:
    """Whether the backward that runs will add to ``weight.grad``."""
    with torch.enable_grad():
        node = weight.view_as(weight).grad_fn.next_functions[0][0]
    return bool(will_engine_execute(node))
