"""The wrapper of peft around a model on ranks: it calls the model as before, and saves adapters."""

from __future__ import annotations

import os
from typing import Any

import torch

from modular_converter.parallel.engine.base.adapted import path_of_base, state_of_adapters, wrap
from modular_converter.parallel.engine.base.weights_there import is_there
from modular_converter.parallel.engine.remote.placement import Placement
from modular_converter.parallel.engine.remote.proxy import OUT_OF_REACH
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.resolve import names_of_tied


class AdaptedOnRanks:
    """The methods that the wrapper has in addition to its own."""

    def get_base_model(self) -> Any:
        return super().get_base_model()  # type: ignore[misc]

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
