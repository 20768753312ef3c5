"""Root-mean-square norms in one kernel, for modules that are shown to compute nothing else.

Libraries write this norm as six kernels over full-width activations, which sharding does not divide. On two H200 they
took 55 of 260 ms of a long forward, and their launches 3 ms of a decoded token. A module gets the fused forward only
after its results have agreed with the fused operation; its name decides nothing.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F

from modular_converter.parallel.engine.base.inner_forward import swap_forward


_EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")
TOLERANCE = 1e-5
# Attributes of every module, on which no trial depends: it has its own tensors, eval mode and no hooks.
_MACHINERY = frozenset(vars(torch.nn.Module()))


class _FusedNorm(torch.nn.Module):
    """A root-mean-square norm with a weight; one operation if the only input has the weight's type.

    ``_fused_eps`` is the name of its epsilon, which code may change; None if it has its own forward again.
    """

    _fused_eps: str | None

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        weight: Any = self.weight
        name = self._fused_eps
        if name is None or kwargs or len(args) != 1 or args[0].dtype != weight.dtype:
            kept: torch.Tensor = super().forward(*args, **kwargs)
            return kept
        return F.rms_norm(args[0], weight.shape, weight, getattr(self, name))


def fuse_norms(model: torch.nn.Module) -> int:
    """Give every norm that agrees the fused forward, in place, for inference; return the number of these norms."""
    found = 0
    judged: dict[tuple[Any, ...], bool] = {}
    for module in model.modules():
        name = _epsilon(module)
        if name is None:
            continue
        key = _configuration(module)
        agrees = judged.get(key) if key is not None else None
        if agrees is None:
            agrees = _agrees(module, getattr(module, name))
        if key is not None:
            judged[key] = agrees
        if agrees:
            swap_forward(module, _FusedNorm, outermost=True)
            module.__dict__["_fused_eps"] = name
            found += 1
    return found


def unfuse_norm(module: torch.nn.Module) -> None:
    """Give a norm its own forward again, because one of its attributes has changed; nothing for other modules."""
    if "_fused_eps" in module.__dict__:
        module.__dict__["_fused_eps"] = None


def _epsilon(module: torch.nn.Module) -> str | None:
    """The name of the epsilon of a module that could be such a norm, with one vector of weights and nothing else; else None."""
    weight = module._parameters.get("weight")
    alone = list(module._parameters) == ["weight"] and not module._modules and not module._buffers
    if not alone or weight is None or weight.dim() != 1 or type(weight) is not torch.nn.Parameter:
        return None
    names = [name for name in _EPSILONS if isinstance(getattr(module, name, None), float)]
    return names[0] if len(names) == 1 and "forward" not in vars(module) else None


def _configuration(module: torch.nn.Module) -> tuple[Any, ...] | None:
    """All values, except input and weight, on which a forward can depend; None if they cannot be hashed."""
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
    """Whether a norm equals the fused operation on rows of very different magnitudes, in several leading shapes."""
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
