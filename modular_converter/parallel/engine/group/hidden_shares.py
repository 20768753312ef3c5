"""Shares of a model for inference in a process group, which only forwards see: all other code sees whole weights.

Each module keeps its tensors in ``_shares``, which its forward reads. ``_parameters`` has tensors of the whole shapes,
whose numbers all processes gather when code reads them. The module gets a class of its own with a property for each
weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.engine.base.weights_there import weight_there
from modular_converter.parallel.engine.group.all_present import meet
from modular_converter.parallel.engine.group.held_weights import HeldWeight, computes_share, made_with
from modular_converter.parallel.shard.apply import reassembled
from modular_converter.parallel.shard.collectives import ProcessGroup


_UNWRITTEN = (
    "{name} is shared out over processes in the form for inference, where writing would change a copy; leave inference= and "
    "compile= out to change weights"
)
_SHARES = "_shares"


def hide_shares(model: torch.nn.Module) -> None:
    """Put whole weights before the shares of a model whose modules say in ``_held`` how they are cut, in place."""
    made: dict[int, torch.nn.Parameter] = {}
    for path, module in model.named_modules():
        held: dict[str, HeldWeight] = module.__dict__.get("_held", {})
        if not held:
            continue
        if _SHARES not in module.__dict__:
            module.__class__ = made_with(type(module), tuple(held), _reader)
        shares = module.__dict__[_SHARES] = dict(module._parameters)
        role = module.__dict__.get("_plain_role")
        if role is not None:  # the weight of its forward, for other code of forwards
            role.data = shares["weight"].data
        for leaf, one in held.items():
            share = shares[leaf]
            if id(share) not in made:
                made[id(share)] = _whole(share, one, f"{path}.{leaf}" if path else leaf)
            module._parameters[leaf] = made[id(share)]


def through_shares(own: Callable[..., Any]) -> Callable[..., Any]:
    """A method such as ``_apply`` that replaces the numbers or the device of all weights: it gets the shares."""

    def applied(self: Any, *args: Any, **kwargs: Any) -> Any:
        for module in self.modules():
            module._parameters.update(module.__dict__.get(_SHARES, {}))
        try:
            return own(self, *args, **kwargs)
        finally:
            hide_shares(self)

    return applied


def _whole(share: Any, held: HeldWeight, name: str) -> torch.nn.Parameter:
    empty, owner = torch.empty(held.shape, dtype=share.dtype, device="meta"), held.group
    assert isinstance(owner, ProcessGroup)

    def fetch() -> torch.Tensor:
        meet(f"code that reads {name}", owner.group)
        assert held.piece is not None
        return reassembled(share.detach().as_subclass(torch.Tensor), held.piece, owner).clone()

    return weight_there(empty, name, share.requires_grad, share.device, fetch, _UNWRITTEN)


def _reader(kind: type[Any], leaf: str) -> property:
    inner = getattr(
        kind, leaf, None
    )  # of a class whose forward reads `_shares`: other code gets the weight with its role

    def read(module: Any) -> Any:
        if torch.compiler.is_compiling() or computes_share(module, module._held[leaf].group):
            return module._shares[leaf] if inner is None else inner.fget(module)
        return module._parameters[leaf]

    return property(read)
