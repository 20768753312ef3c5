"""Norms in few kernels, for modules that are shown to compute nothing else.

Libraries write a norm as six to ten kernels over full-width activations, which sharding does not divide. On two H200 they
took 55 of 260 ms of a long forward of llama, and their launches 3 ms of a decoded token; on two H100 those of gemma3,
which adds one to the weight in float32, took 44 of 115 ms of a decoded token. A module gets a fused forward only after
its results have agreed with it; its name decides nothing.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F

from modular_converter.parallel.engine.base.inner_forward import swap_forward
from modular_converter.parallel.engine.inference.fused import Fused, configuration
from modular_converter.parallel.engine.inference.norm_kernel import norm_kernel


_EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")
# Of the greatest result. In half precision the module may round in between, which the fused operation does not.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


class _FusedNorm(Fused):
    """A norm over the last dimension; a fused operation if the only input has the weight's type.

    ``_fused_eps`` is the name of its epsilon, which code may change.
    """

    _fused_eps: str

    @staticmethod
    def fused(x: torch.Tensor, weight: Any, bias: Any, eps: float) -> torch.Tensor:
        """The norm of a tensor in float32, in the type of the tensor."""
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        own = self._parameters
        weight = own.get("weight")
        if kwargs or len(args) != 1 or not self._fused or weight is not None and args[0].dtype != weight.dtype:
            kept: torch.Tensor = super().forward(*args, **kwargs)
            return kept
        return self.fused(args[0], weight, own.get("bias"), getattr(self, self._fused_eps))

    def may_change(self, name: str) -> bool:
        """Its epsilon."""
        return name == self.__dict__.get("_fused_eps")


class _Scaled(_FusedNorm):
    """The root-mean-square norm, times the weight if there is one."""

    @staticmethod
    def fused(x: torch.Tensor, weight: Any, bias: Any, eps: float) -> torch.Tensor:
        return F.rms_norm(x, x.shape[-1:], weight, eps)


class _OnePlus(_FusedNorm):
    """The root-mean-square norm, times one plus the weight, in float32: in a shorter type the sum would lose the weight."""

    @staticmethod
    def fused(x: torch.Tensor, weight: Any, bias: Any, eps: float) -> torch.Tensor:
        if x.is_cuda and not torch.compiler.is_compiling():
            kernel = norm_kernel(x.device, _one_plus)
            if kernel is not None:
                return kernel(x, weight, eps)
        return _one_plus(x, weight, eps)


def _one_plus(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normed = F.rms_norm(x.float(), x.shape[-1:], None, eps)
    return torch.addcmul(normed, normed, weight).to(x.dtype)


class _Centred(_FusedNorm):
    """The norm of layers: the mean is subtracted before."""

    @staticmethod
    def fused(x: torch.Tensor, weight: Any, bias: Any, eps: float) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


# The names of a module's parameters -> what it may be.
_FORMS: dict[tuple[str, ...], tuple[type[_FusedNorm], ...]] = {
    (): (_Scaled, _Centred),
    ("weight",): (_Scaled, _OnePlus, _Centred),
    ("weight", "bias"): (_Centred,),
}
# Of trials of a module without a weight, which has no width of its own; no multiple of one is a multiple of all.
_WIDTHS = (24, 40)


def fuse_norms(model: torch.nn.Module) -> int:
    """Give every norm that agrees the fused forward, in place, for inference; return the number of these norms."""
    found = 0
    judged: dict[tuple[Any, ...], type[_FusedNorm] | None] = {}
    for module in model.modules():
        name = _epsilon(module)
        if name is None:
            continue
        key = configuration(module)
        form = judged[key] if key in judged else _form(module, getattr(module, name))
        if key is not None:
            judged[key] = form
        if form is not None:
            swap_forward(module, form, outermost=True)
            module.__dict__.update(_fused=True, _fused_eps=name)
            found += 1
    return found


def _epsilon(module: torch.nn.Module) -> str | None:
    """The name of the epsilon of a module that could be such a norm, with vectors as its only tensors; else None."""
    own = module._parameters
    if (
        tuple(own) not in _FORMS
        or module._modules
        or module._buffers
        or type(module).forward is torch.nn.LayerNorm.forward
    ):
        return None
    if any(one is None or one.dim() != 1 or type(one) is not torch.nn.Parameter for one in own.values()):
        return None
    names = [name for name in _EPSILONS if isinstance(getattr(module, name, None), float)]
    return names[0] if len(names) == 1 and "forward" not in vars(module) else None


def _form(module: torch.nn.Module, eps: float) -> type[_FusedNorm] | None:
    """The fused forward that a module agrees with; None for another module."""
    weight = module._parameters.get("weight")
    widths = _WIDTHS if weight is None else (weight.shape[0],)
    for form in _FORMS[tuple(module._parameters)]:
        if all(_agrees(module, form, width, eps, kind) for width in widths for kind in TOLERANCES):
            return form
    return None


def _agrees(module: torch.nn.Module, form: type[_FusedNorm], width: int, eps: float, kind: torch.dtype) -> bool:
    """Whether a norm equals the fused operation on rows of very different magnitudes, in several leading shapes."""
    generator = torch.Generator().manual_seed(5)
    own = {name: torch.randn(width, generator=generator).to(kind) for name in module._parameters}
    rows = torch.randn(6, width, generator=generator)
    rows = (rows * torch.tensor([1e-4, 1e-3, 0.1, 1.0, 30.0, 1e3])[:, None] + 0.01).to(kind)
    trial = copy.copy(module)
    trial._parameters = {name: torch.nn.Parameter(one, requires_grad=False) for name, one in own.items()}
    trial.training = False
    want = form.fused(rows, own.get("weight"), own.get("bias"), eps).float()
    try:
        with torch.no_grad():
            for leading in ((6,), (2, 3), (1, 2, 3)):
                got = trial.forward(rows.view(*leading, width))
                if got.dtype != kind or got.shape != (*leading, width):
                    return False
                if not bool((got.float().view(6, width) - want).abs().max() <= TOLERANCES[kind] * want.abs().max()):
                    return False
    except Exception:  # another forward altogether
        return False
    return True
