"""Tensors that a forward stores on modules which compute with shares: other code reads them whole, or gets an error."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from modular_converter.parallel.engine.base.weights_there import stored_there
from modular_converter.parallel.engine.group.all_present import meet
from modular_converter.parallel.engine.group.same_calls import digest, everywhere
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import ProcessGroup


class StoredShares:
    """The attributes of modules: between calls, stand-ins take the place of tensors.

    Args:
        modules: path -> a module in which processes compute different things.
    """

    def __init__(self, modules: Iterable[tuple[str, torch.nn.Module]], group: ProcessGroup) -> None:
        self.scopes, self.group = [(path, vars(module)) for path, module in modules], group
        self.made = [dict(scope) for _, scope in self.scopes]  # constants that no forward has stored
        self.shown: list[tuple[dict[str, Any], str, Any, Any]] = []

    def show(self) -> None:
        """After a call: to other code, tensors that it has stored are those that all processes have alike."""
        for (path, scope), made in zip(self.scopes, self.made):
            for name, own in scope.items():
                if isinstance(own, torch.Tensor) and own is not made.get(name):
                    there = stored_there(f"{path}.{name}", partial(self._whole, own, f"{path}.{name}"))
                    self.shown.append((scope, name, there, own))
        for scope, name, there, _ in self.shown:
            scope[name] = there

    def hide(self) -> None:
        """Before a call: its forwards read what they have stored."""
        for scope, name, there, own in self.shown:
            if scope.get(name) is there:
                scope[name] = own
        self.shown.clear()

    def _whole(self, own: torch.Tensor, where: str) -> torch.Tensor:
        meet(f"code that reads {where}", self.group.group)
        if len(set(everywhere((tuple(own.shape), digest(own)), self.group))) > 1:
            raise ApplyError(
                f"{where} was stored by a forward and is this process's share, {list(own.shape)}: let forward return it, or "
                "store it in the module around"
            )
        return own
