"""Root-mean-square norms in one kernel, where a module's own code is shown to compute nothing else.

Libraries write this norm out: six kernels over full-width activations, which sharding does not divide. On two H200 they
took 55 of 260 ms of a long forward, and their launches 3 ms of a decoded token. A module is replaced only after it has
agreed with the fused operation on numbers of its own width; its name decides nothing.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F


_EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")
TOLERANCE = 1e-5
# No forward depends on these: the trial has tensors of its own, is in eval mode and runs without hooks.
_MACHINERY = frozenset(vars(torch.nn.Module()))
_MADE: dict[type[Any], type[Any]] = {}


class _FusedNorm(torch.nn.Module):
    """A root-mean-square norm with a weight as one operation, if there is one input of the weight's type."""

    _fused_eps: float

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        weight = self._parameters["weight"]
        assert weight is not None
        if kwargs or len(args) != 1 or args[0].dtype != weight.dtype:
            kept: torch.Tensor = super().forward(*args, **kwargs)
            return kept
        return F.rms_norm(args[0], weight.shape, weight, self._fused_eps)


def fuse_norms(model: torch.nn.Module) -> int:
    """Give every norm that agrees the fused forward, in place; return how many there were. For inference alone."""
    found = 0
    judged: dict[tuple[Any, ...], bool] = {}
    for module in model.modules():
        eps = _epsilon(module)
        if eps is None:
            continue
        key = _configuration(module)
        agrees = judged.get(key) if key is not None else None
        if agrees is None:
            agrees = _agrees(module, eps)
        if key is not None:
            judged[key] = agrees
        if agrees:
            _fuse(module, eps)
            found += 1
    return found


def _fuse(module: torch.nn.Module, eps: float) -> None:
    old = type(module)
    if old not in _MADE:
        body = {"__module__": old.__module__, "__qualname__": old.__qualname__}
        _MADE[old] = type(old.__name__, (_FusedNorm, old), body)
    module.__class__ = _MADE[old]
    module.__dict__["_fused_eps"] = eps


def _epsilon(module: torch.nn.Module) -> float | None:
    """The small number of a module that could be such a norm: no part but one vector of weights."""
    weight = module._parameters.get("weight")
    alone = list(module._parameters) == ["weight"] and not module._modules and not module._buffers
    if not alone or weight is None or weight.dim() != 1 or type(weight) is not torch.nn.Parameter:
        return None
    values = [value for name in _EPSILONS if isinstance(value := getattr(module, name, None), float)]
    return values[0] if len(values) == 1 and "forward" not in vars(module) else None


def _configuration(module: torch.nn.Module) -> tuple[Any, ...] | None:
    """All values but input and weight that a forward can depend on; None where they cannot be compared."""
    weight = module._parameters["weight"]
    assert weight is not None
    plain = sorted((name, value) for name, value in vars(module).items() if name not in _MACHINERY)
    key = (type(module), weight.shape, *((name, type(value), value) for name, value in plain))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _agrees(module: torch.nn.Module, eps: float) -> bool:
    """Whether a norm equals the fused operation, on rows of very different sizes and for any leading shape."""
    assert (own := module._parameters["weight"]) is not None
    width = own.shape[0]
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(width, generator=generator)
    rows = torch.randn(6, width, generator=generator)
    rows = rows * torch.tensor([1e-4, 1e-3, 0.1, 1.0, 30.0, 1e3])[:, None] + 0.01
    trial = copy.copy(module)
    trial._parameters = {"weight": torch.nn.Parameter(weight, requires_grad=False)}
    trial.training = False
    want = F.rms_norm(rows, (width,), weight, eps)
    try:
        with torch.no_grad():
            for leading in ((6,), (2, 3), (1, 2, 3)):
                got = trial.forward(rows.view(*leading, width)).view(6, width)
                if not bool((got - want).abs().max() <= TOLERANCE * want.abs().max()):
                    return False
    except Exception:  # another forward altogether
        return False
    return True
