"""Sequence parallelism, as in Megatron: between the sharded regions each process has its part of the sequence.

Row-wise layers end in a reduce-scatter, and an all-gather precedes column-wise layers. So norms, residuals and dropout
keep only a part of the activations. Without gradients, activations stay whole, since decoding has one token a step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from modular_converter.parallel.engine.group.product_forwards import SCATTERS
from modular_converter.parallel.engine.group.sequence_zone import Zone
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import SEQUENCE, Group, part_of_sequence, whole_sequence
from modular_converter.parallel.torch_private import current_graph_task_id, pytree


# An attribute of each tensor that a layer returns. Code between the layers would make a tensor without it.
_HANDED_ON = "_part_of_sequence"


class SequenceParallel:
    """The hooks on a model's layers; ``detach`` removes them.

    They run first and last, so that other hooks see the modules' own inputs and outputs.

    Args:
        products: linear layers that reduce-scatter their product themselves.
    """

    def __init__(self, model: torch.nn.Module, zone: Zone, group: Group, products: Collection[str] = ()) -> None:
        self.group, self.part = group, torch.Size()
        self.wholes: dict[str, torch.Size] = {}
        self.handles: list[Any] = [model.register_forward_pre_hook(_refuse_states, with_kwargs=True)]
        self.products = [model.get_submodule(path) for path in products]
        for product in self.products:
            product.__dict__[SCATTERS] = True
        for path in zone.layers:
            first, last = path == zone.layers[0], path == zone.layers[-1]
            self._hook(model.get_submodule(path), self._before_layer(path, first), self._after_layer(path, last))
        for path in zone.regions:
            self._hook(model.get_submodule(path), self._before_region(path), self._after_region(path))

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()
        for product in self.products:
            product.__dict__.pop(SCATTERS, None)

    def _hook(self, module: torch.nn.Module, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        self.handles.append(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
        self.handles.append(module.register_forward_hook(after))

    def _before_layer(self, path: str, first: bool) -> Callable[..., Any]:
        def before(layer: Any, args: Any, kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return None
            given = _moving((args, kwargs)) or [one for one in _floats((args, kwargs)) if one.dim() == 3][:1]
            if len(given) != 1 or given[0].dim() != 3:
                shapes = [list(one.shape) for one in given]
                raise ApplyError(
                    f"sequence_parallel=: {path} takes {shapes or 'no'} tensors with gradients; it must take exactly one "
                    "tensor [batch, sequence, features]: leave it out for this model"
                )
            whole = given[0]
            if not first:
                self._check_handed_on(path, whole)
                self.part = whole.shape
                return None
            length = whole.shape[SEQUENCE]
            if length % self.group.size:
                raise ApplyError(
                    f"sequence_parallel=: a sequence of {length} does not divide by {self.group.size} processes: pad it to a "
                    f"multiple of {self.group.size}, or leave it out"
                )
            part = part_of_sequence(whole, self.group)
            # After a frozen embedding too: activations are recognised by their gradient.
            part = part if part.requires_grad else part.detach().requires_grad_()
            self.part = part.shape
            return _exchanged((args, kwargs), {id(whole): part})

        return before

    @staticmethod
    def _check_handed_on(path: str, tensor: torch.Tensor) -> None:
        computed_again = current_graph_task_id() != -1  # in a backward
        if not computed_again and not hasattr(tensor, _HANDED_ON):
            raise ApplyError(
                f"sequence_parallel=: before {path} the model computes with the output of the previous layer, which is a part "
                "of the sequence: leave it out for this model"
            )

    def _after_layer(self, path: str, last: bool) -> Callable[..., Any]:
        def after(layer: Any, args: Any, result: Any) -> Any:
            if not torch.is_grad_enabled():
                return None
            parts = [one for one in _moving(result) if one.shape == self.part]
            if not parts:
                raise ApplyError(
                    f"sequence_parallel=: {path} returns no tensor of the shape of its input: leave it out for this model"
                )
            if last:
                return _exchanged(result, {id(one): whole_sequence(one, self.group) for one in parts})
            for one in parts:
                setattr(one, _HANDED_ON, True)
            return None

        return after

    def _before_region(self, path: str) -> Callable[..., Any]:
        def before(region: Any, args: Any, kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                return None
            # Not the shape in the layer's call: a backward recomputes regions after forwards of other lengths.
            given = {id(one): one for one in _moving((args, kwargs))}
            shapes = {one.shape for one in given.values()}
            if len(shapes) != 1 or len(next(iter(shapes))) != 3:
                said = [list(shape) for shape in shapes] or "none"
                raise ApplyError(
                    f"sequence_parallel=: {path} takes tensors of {said}; it must take tensors of one shape [batch, sequence, "
                    "features]: leave it out for this model"
                )
            wholes = {key: whole_sequence(one, self.group) for key, one in given.items()}
            self.wholes[path] = next(iter(wholes.values())).shape
            return _exchanged((args, kwargs), wholes)

        return before

    def _after_region(self, path: str) -> Callable[..., Any]:
        def after(region: Any, args: Any, result: Any) -> Any:
            if not torch.is_grad_enabled():
                return None
            whole = self.wholes[path]
            batch, length, *features = whole
            part = torch.Size((batch, length // self.group.size, *features))
            moving = _moving(result)
            if not any(one.shape in (whole, part) for one in moving):
                raise ApplyError(
                    f"sequence_parallel=: {path} returns no tensor of {list(whole)}: leave it out for this model"
                )
            return _exchanged(
                result, {id(one): part_of_sequence(one, self.group) for one in moving if one.shape == whole}
            )

        return after


def _refuse_states(model: Any, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        raise ApplyError("sequence_parallel= and torch.compile do not go together yet: leave one of them out")
    config = getattr(model, "config", None)
    if torch.is_grad_enabled() and kwargs.get("output_hidden_states", getattr(config, "output_hidden_states", False)):
        raise ApplyError(
            "output_hidden_states: with sequence_parallel a process has only parts; ask for them under torch.no_grad()"
        )


def _is_leaf(value: Any) -> bool:
    """Whether a value is no tuple, list or dict. Caches count as leaves: otherwise they would be copied."""
    return not isinstance(value, (tuple, list, dict))


def _floats(values: Any) -> list[torch.Tensor]:
    leaves = {id(one): one for one in pytree.tree_leaves(values, _is_leaf) if isinstance(one, torch.Tensor)}
    return [one for one in leaves.values() if one.is_floating_point()]


def _moving(values: Any) -> list[torch.Tensor]:
    """The tensors that require gradients, each once: the activations."""
    return [one for one in _floats(values) if one.requires_grad]


def _exchanged(values: Any, others: dict[int, torch.Tensor]) -> Any:
    return pytree.tree_map(lambda leaf: others.get(id(leaf), leaf), values, is_leaf=_is_leaf)
