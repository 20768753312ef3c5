"""The Python numbers, words and types among the operands of a forward's operations.

A number that the code computes from a shape, such as ``1 / sqrt(weight.shape[0])``, reaches an operation as a plain
number, and differs if the weight is a share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from modular_converter.parallel.proof.watch import running_modules
from modular_converter.parallel.solve.operators import creation, cuts, views
from modular_converter.parallel.trace.call_names import site_of_call


# Operators whose operands are only sizes and tensors; in ``_FILLS`` the operands from this index on are numbers or types.
_PLAIN = ("mm", "linear", "convolution")
_WITHOUT = frozenset(_PLAIN).union(*(family.TABLE.operators for family in (views, cuts, creation)))
_FILLS = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0, "_to_copy": 1}
# A tensor with data and at most so many entries counts as numbers, such as ``torch.tensor(scale)``.
_FEW = 16
_WING = Path(__file__).parents[1]
# Code of this wing between a model's line and its operation; styles and collectives have numbers of their own.
_BETWEEN = tuple(str(_WING / name) for name in ("proof", "trace", "tiny", "engine", "shard/role_parameters"))

Place = tuple[str, str, str]
"""The path of the running module, ``path:line`` of the code, and the operator."""
Numbers = dict[Place, list[str]]
"""The numbers of each operation at a place, in order, as text."""


def numbers_of(model: torch.nn.Module, run: Callable[[], Any]) -> Numbers:
    """The numbers in a model's computations in one run, without those of styles and collectives.

    Args:
        run: runs the model's forward; it needs no data.
    """
    stack, found = [""], Numbers()
    with running_modules(model, stack), torch.no_grad(), _Watch(stack, found):
        run()
    return found


def differences(whole: Numbers, share: Numbers) -> dict[Place, tuple[str, str]]:
    """Place where the numbers differ -> the first pair that differs."""
    found = {}
    for place in whole.keys() | share.keys():
        one, other = whole.get(place, []), share.get(place, [])
        if one != other:
            pairs = zip([*one, *["nothing"] * len(other)], [*other, *["nothing"] * len(one)])
            found[place] = next((a, b) for a, b in pairs if a != b)
    return found


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the numbers among the operands of each operation in the model's own code."""

    def __init__(self, stack: list[str], found: Numbers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stack, self.found = stack, found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2].rstrip("_")
        if (name not in _WITHOUT or name in _FILLS) and (site := _site()):
            given = (args[_FILLS.get(name, 0) :], kwargs or {})
            self.found.setdefault((self.stack[-1], site, name), []).append(" ".join(_numbers(given)))
        return func(*args, **(kwargs or {}))


def _site() -> str:
    """The running line of the model's code; empty in the code of styles and collectives."""
    site = site_of_call(_BETWEEN)
    return "" if site.startswith(str(_WING)) else site


def _numbers(value: Any) -> Iterator[str]:
    if isinstance(value, torch.Tensor):
        if not value.is_meta and value.numel() <= _FEW:
            yield from map(str, value.flatten().tolist())
    elif isinstance(value, (int, float, complex, str, torch.dtype)):
        yield str(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _numbers(item)
