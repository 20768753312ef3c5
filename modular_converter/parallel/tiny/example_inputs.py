"""The example inputs of a plain ``nn.Module``, for which none can be made from a configuration."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any


_NAME = "_example_inputs"


class ExampleInputs:
    """Arguments of one forward, by name; pickled, so that the tensors are none of the module's.

    Attributes:
        staged: whether the module is cut into stages, which hand over whole tensors.
    """

    def __init__(self, inputs: Mapping[str, Any], staged: bool) -> None:
        self._data, self.staged = pickle.dumps(dict(inputs)), staged

    def values(self) -> dict[str, Any]:
        """The arguments, new at each call."""
        found: dict[str, Any] = pickle.loads(self._data)
        return found


def remember_examples(module: Any, inputs: Mapping[str, Any], staged: bool = False) -> None:
    """Let a module have example inputs: each run of its proofs and checks takes them."""
    module.__dict__[_NAME] = ExampleInputs(inputs, staged)


def is_staged(module: Any) -> bool:
    """Whether a module with example inputs is cut into stages."""
    found = module.__dict__.get(_NAME)
    return isinstance(found, ExampleInputs) and found.staged


def examples_of(module: Any) -> dict[str, Any] | None:
    """The example inputs of a module; None if it has none."""
    found = module.__dict__.get(_NAME)
    return found.values() if isinstance(found, ExampleInputs) else None
