"""Trials of a user's model before a process starts: a forward without data; if that fails, of a short copy with data.

The whole model runs, and then the model as one of the ranks holds it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.choice.kinds_of_layers import kinds_of, one_of_each_kind
from modular_converter.parallel.choice.skeleton import Skeleton
from modular_converter.parallel.choice.trial_inputs import TYPES, bare, inputs_with_data, inputs_without_data
from modular_converter.parallel.choice.without_data import run_without_data, tried_without_data


# A copy with data has at most so many parameters (0.4 GB in float32); there is one for the whole model, and one for a rank.
MOST_WITH_DATA = 100_000_000


@dataclass(frozen=True)
class Trial:
    """A way to run a model.

    Attributes:
        skeleton: of the model.
        kind: the type of its floating tensors without data; None for the model's own types.
        filled: a copy of the model with data, with one layer of each kind; None for runs without data.
    """

    skeleton: Skeleton
    kind: torch.dtype | None = None
    filled: torch.nn.Module | None = None

    def model(self) -> torch.nn.Module:
        """A new copy of the whole model, in eval mode; a plan can be applied to it."""
        return (bare(self.skeleton, self.kind) if self.filled is None else copy.deepcopy(self.filled)).eval()

    def inputs(self) -> dict[str, Any]:
        """Inputs for its forward. Raises the errors of the model's own code, or ``ApplyError``."""
        return inputs_without_data(self.skeleton, self.kind) if self.filled is None else inputs_with_data(self.filled)

    def run(self, model: torch.nn.Module) -> None:
        """Run a model that ``model`` has made. Raises the errors of its code."""
        given = self.inputs()
        if self.filled is None:
            tried_without_data(lambda: self.run_with(model, given))
        else:
            self.run_with(model, given)

    def run_with(self, model: torch.nn.Module, inputs: dict[str, Any]) -> None:
        """Run the model with inputs, on the present default device. Raises the errors of its code."""
        if self.filled is None:
            run_without_data(model, kwargs=inputs)
            return
        with torch.no_grad():
            model(**inputs)


def trials(skeleton: Skeleton, model: torch.nn.Module | None = None) -> Iterator[Trial]:
    """The ways to run a model, the cheapest first.

    Args:
        model: with its data, for runs with data.
    """
    for kind in TYPES:
        yield Trial(skeleton, kind)
    filled = None if model is None else with_data(model, MOST_WITH_DATA)
    if filled is not None:
        yield Trial(skeleton, filled=filled)


def with_data(model: torch.nn.Module, most: float) -> torch.nn.Module | None:
    """A copy of a model in float32, with one layer of each kind, and random weights where it has none, as from a folder.

    None if the copy would have more than ``most`` parameters, or its code does not allow a copy.
    """
    try:
        short = one_of_each_kind(model, kinds_of(model))
        if sum(parameter.numel() for parameter in short.parameters()) > most:
            return None
        made = copy.deepcopy(short)
    except Exception:  # raised by the model's own code
        return None
    generator = torch.Generator().manual_seed(0)
    drawn: dict[int, torch.nn.Parameter] = {}
    for parameter in made.parameters():
        if parameter.is_meta:
            drawn[id(parameter)] = torch.nn.Parameter(_drawn(parameter, generator), parameter.requires_grad)
    for module in made.modules():
        for name, own in module._parameters.items():
            module._parameters[name] = drawn.get(id(own), own)
    return made.float().eval()


def _drawn(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random weights that keep numbers in a usual range: matrices that are no amplifiers, vectors near one."""
    if not like.is_floating_point():
        return torch.zeros(like.shape, dtype=like.dtype)
    values = torch.randn(like.shape, generator=generator)
    return values / max(like.shape[-1], 1) ** 0.5 if like.dim() > 1 else 1 + 0.1 * values
