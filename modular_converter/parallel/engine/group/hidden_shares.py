"""Shares that only forwards see: all other code sees whole weights, and integers of the whole model.

For inference, each module keeps its tensors in ``_shares``, which its forward reads. ``_parameters`` has tensors of the
whole shapes, whose numbers all processes gather when code reads them. The module gets a class of its own with a property
for each weight.

The module's ``__dict__`` has the value of the whole model, and a property of its class gives code of a forward the value
of this process. A configuration of which a module has a copy with smaller numbers is such a value, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.engine.base.weights_there import weight_there
from modular_converter.parallel.engine.group.held_weights import HeldWeight, computes_share, made_with
from modular_converter.parallel.engine.group.same_calls import meet
from modular_converter.parallel.shard.apply import Applied, reassembled
from modular_converter.parallel.shard.collectives import ProcessGroup


_SIZES = "_sizes"


def hide_sizes(applied: Applied) -> list[tuple[Any, type[Any]]]:
    """Put the whole model's values before those of this process, in place.

    Returns:
        The changed modules with their classes, for ``show_sizes``.
    """
    whole: dict[int, tuple[Any, dict[str, Any]]] = {}
    for owner, name, value in applied.integers:
        if isinstance(owner, torch.nn.Module) and name in vars(owner):
            whole.setdefault(id(owner), (owner, {}))[1].setdefault(name, value)
    changed = []
    for module, values in whole.values():
        module.__dict__[_SIZES] = applied.group, {name: vars(module)[name] for name in values}
        module.__dict__.update(values)
        changed.append((module, type(module)))
        module.__class__ = made_with(type(module), tuple(values), _size_reader)
    return changed


def show_sizes(changed: list[tuple[Any, type[Any]]]) -> None:
    """Undo ``hide_sizes``; ``undo`` of the shares sets the whole values."""
    for module, own in changed:
        module.__class__ = own
        module.__dict__.pop(_SIZES)


def _size_reader(kind: type[Any], name: str) -> property:
    def read(module: Any) -> Any:
        group, own = module._sizes
        if torch.compiler.is_compiling() or computes_share(module, group):
            return own[name]
        return module.__dict__[name]

    def write(module: Any, value: Any) -> None:
        module.__dict__[name] = value  # the next call refuses it

    return property(read, write)


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
