"""Refuse gradients of weights that data ranks share out or copy, by any other way than ``loss.backward()``.

A forward uses other tensors than ``model.parameters()`` has then, and only their backward brings each weight its gradient,
averaged over the data ranks. ``torch.autograd.grad`` of such a weight finds nothing: with ``allow_unused`` without a word.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError


def checked_grad(users: Any, own: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.autograd.grad``, which first looks at the tensors whose gradients are wanted."""
    _refuse_spread(users, inputs, "torch.autograd.grad")
    return own(outputs, inputs, *args, **kwargs)


def checked_backward(users: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.autograd.backward``, which also is that of a tensor."""
    _refuse_spread(users, kwargs.get("inputs"), "backward(inputs=)")
    return own(*args, **kwargs)


def _refuse_spread(users: Iterable[Any], inputs: Any, name: str) -> None:
    wanted = [inputs] if isinstance(inputs, torch.Tensor) else inputs if isinstance(inputs, (list, tuple)) else []
    weights = {id(one) for one in wanted if isinstance(one, torch.nn.Parameter)}
    if not weights:
        return
    for user in users:
        grid = user.__dict__.get("_grid")
        if grid is None or grid.data is None:
            continue
        found = next((path for path, one in user.named_parameters() if id(one) in weights), None)
        if found is not None:
            raise ApplyError(
                f"{name} of {found}: data ranks share out this weight's gradient, which loss.backward() alone computes; call "
                "it, and read the weight's .grad"
            )
