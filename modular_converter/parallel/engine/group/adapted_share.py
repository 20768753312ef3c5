"""The wrapper of peft around a model that is sharded over a process group."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.engine.base.adapted import path_of_base, state_of_adapters, wrap
from modular_converter.parallel.engine.group.all_present import meet
from modular_converter.parallel.engine.group.in_process_group import ALONE
from modular_converter.parallel.engine.group.spread import spread_of
from modular_converter.parallel.engine.group.whole_state import whole_tensors
from modular_converter.parallel.errors import ApplyError


class AdaptedShare:
    """The methods that the wrapper has in addition to its own; all processes must call them."""

    def get_base_model(self) -> Any:
        return super().get_base_model()  # type: ignore[misc]

    def _prefix(self) -> str:
        return f"{path_of_base(self, self.get_base_model())}."  # type: ignore[arg-type]

    def unshard(self) -> Any:
        """Make the wrapped model whole again, in place, on every rank."""
        self.get_base_model().unshard()
        return self

    def full_state_dict(self, first_only: bool = False) -> dict[str, torch.Tensor]:
        """The whole weights on the CPU, named as in the wrapper's ``state_dict``; see ``Sharded.full_state_dict``."""
        found = self.get_base_model().full_state_dict(first_only)
        return {f"{self._prefix()}{name}": value for name, value in found.items()}

    def load_full_state_dict(self, state: Mapping[str, torch.Tensor] | None) -> None:
        """Take this rank's shares from whole weights, named as in the wrapper; see ``Sharded.load_full_state_dict``."""
        own = None if state is None else {name.removeprefix(self._prefix()): value for name, value in state.items()}
        self.get_base_model().load_full_state_dict(own)

    def save_pretrained(self, folder: str | os.PathLike[str], **more: Any) -> None:
        """Save the adapters as peft does, from the first process; only their weights are gathered."""
        meet("save_pretrained")
        own: Any = super()
        base, prefix = self.get_base_model(), self._prefix()
        state = torch.nn.Module.state_dict(base, prefix=prefix, keep_vars=True)
        whole, fetch = whole_tensors(state, {f"{prefix}{one.name}": one for one in spread_of(base)})
        adapters = state_of_adapters(self, whole, fetch, **more)
        if dist.get_rank() == 0:
            own.save_pretrained(folder, state_dict=adapters, **more)
        dist.barrier()


def wrap_share(wrapper: Any, base: Any) -> Any:
    """The wrapper, around a model that has become this process's share."""
    wrap(wrapper, base, AdaptedShare, ApplyError, ALONE)
    return wrapper
