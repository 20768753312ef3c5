"""Integers of modules that shrink with a process's share, such as the number of heads: only forwards see its own.

The module's ``__dict__`` has the value of the whole model, and a property of its class gives code of a forward the value of
this process. A configuration of which a module has a copy with smaller numbers is such a value, too.
"""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.engine.group.held_weights import computes_share, made_with
from modular_converter.parallel.shard.apply import Applied


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
        module.__class__ = made_with(type(module), tuple(values), _reader)
    return changed


def show_sizes(changed: list[tuple[Any, type[Any]]]) -> None:
    """Undo ``hide_sizes``; ``undo`` of the shares sets the whole values."""
    for module, own in changed:
        module.__class__ = own
        module.__dict__.pop(_SIZES)


def _reader(kind: type[Any], name: str) -> property:
    def read(module: Any) -> Any:
        group, own = module._sizes
        if torch.compiler.is_compiling() or computes_share(module, group):
            return own[name]
        return module.__dict__[name]

    def write(module: Any, value: Any) -> None:
        module.__dict__[name] = value  # the next call refuses it

    return property(read, write)
