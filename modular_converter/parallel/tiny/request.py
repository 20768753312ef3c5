"""The request for one forward's inputs: the model, its forward's argument names, and seeded random numbers."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.tiny.sizes import BATCH


Values = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """A set of inputs to make.

    Attributes:
        required: names of the forward's arguments without a default.
        optional: names of its arguments with a default.
    """

    model: torch.nn.Module
    config: Any
    required: frozenset[str]
    optional: frozenset[str]
    generator: torch.Generator

    @staticmethod
    def of(model: torch.nn.Module) -> Request:
        """The request of a model's own forward."""
        taken = [
            parameter
            for parameter in inspect.signature(model.forward).parameters.values()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        required = frozenset(parameter.name for parameter in taken if parameter.default is parameter.empty)
        optional = frozenset(parameter.name for parameter in taken) - required
        return Request(model, model.config, required, optional, torch.Generator().manual_seed(0))

    def takes(self, name: str) -> bool:
        """Whether the forward has an argument of this name."""
        return name in self.required or name in self.optional

    def normal(self, *shape: int) -> torch.Tensor:
        """Normally distributed random numbers, float32."""
        return torch.randn(*shape, generator=self.generator)

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Random integers from ``low`` to ``high - 1``, int64."""
        return torch.randint(low, max(high, low + 1), shape, generator=self.generator)

    def only_taken(self, values: Mapping[str, Any]) -> Values:
        """The values whose names the forward takes."""
        return {name: value for name, value in values.items() if self.takes(name)}


InputLayout = Callable[[Request], Values]
"""A function that makes images or audio in one of the layouts that models take."""


def per_sample(rows: Sequence[int]) -> torch.Tensor:
    """The same row of integers for each sample, ``[batch, len(rows)]``."""
    return torch.tensor([list(rows)] * BATCH)
