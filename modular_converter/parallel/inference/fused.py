"""Norms and activations in few kernels, for modules that are shown to compute nothing else.

Libraries write a norm as six to ten kernels over full-width activations, which sharding does not divide. On two H200 they
took 55 of 260 ms of a long forward of llama, and their launches 3 ms of a decoded token; on two H100 those of gemma3,
which adds one to the weight in float32, took 44 of 115 ms of a decoded token. A module gets a fused forward only after
its results have agreed with it; its name decides nothing. It goes back to its own when one of its attributes is set.

The norm times one plus a weight has a kernel of its own, on GPUs with Triton: as operations of torch it is four kernels,
which read and write eight times the bytes. It is used only where it has given the same numbers as these.
"""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from modular_converter.parallel.errors import one_line
from modular_converter.parallel.modules import OF_TORCH
from modular_converter.parallel.shard.forwards import swap_forward


try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:  # torch for CPUs comes without it
    triton = tl = None

logger = logging.getLogger(__name__)
Norm = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
# A row is held in the registers of one block.
WIDEST = 1 << 14
_TOLERANCES_OF_KERNEL = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


# Triton looks up annotations, and refuses those of Python.
def _row(x, weight, found, width, eps, block: tl.constexpr):  # type: ignore[no-untyped-def]
    start = tl.program_id(0).to(tl.int64) * width
    columns = tl.arange(0, block)
    inside = columns < width
    values = tl.load(x + start + columns, mask=inside, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(values * values, 0) / width + eps)
    factor = 1.0 + tl.load(weight + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(found + start + columns, (values * scale * factor).to(found.dtype.element_ty), mask=inside)


@functools.cache
def norm_kernel(device: torch.device, plain: Norm) -> Norm | None:
    """The norm in one kernel on a GPU; None where it cannot be compiled, or gives other numbers than ``plain``.

    For 16384 rows of 2560 an H100 takes 0.06 ms, and 0.57 for the four kernels of ``plain``; the host 31 and 56 microseconds.
    """
    if triton is None:
        return None
    compiled = triton.jit(_row)

    def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        width = x.shape[-1]
        if width > WIDEST or not x.numel():
            return plain(x, weight, eps)
        x = x.contiguous()
        found = torch.empty_like(x)
        block = triton.next_power_of_2(width)
        warps = 4 if block <= 2048 else 8
        compiled[(x.numel() // width,)](x, weight, found, width, eps, block=block, num_warps=warps)
        return found

    try:
        return norm if all(_agrees(norm, plain, device, kind) for kind in _TOLERANCES_OF_KERNEL) else None
    except Exception as error:  # no compiler on this machine, or an unknown GPU
        logger.info("norms of one plus the weight are four kernels: %s", one_line(error))
        return None


def _agrees(norm: Norm, plain: Norm, device: torch.device, kind: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(5)
    for rows, width in ((3, 40), (2, 2560)):
        x = torch.randn(rows, width, generator=generator) * torch.tensor([1e-3, 1.0, 30.0])[:rows, None]
        given, weight = x.to(device, kind), torch.randn(width, generator=generator).to(device, kind)
        got, want = norm(given, weight, 1e-6).float(), plain(given, weight, 1e-6).float()
        if not torch.allclose(got, want, rtol=_TOLERANCES_OF_KERNEL[kind], atol=_TOLERANCES_OF_KERNEL[kind]):
            return False
    return True


# Of a norm's greatest result; of an activation relative and absolute. In half precision a module may round in between,
# which the fused operation does not.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
# Attributes of every module, on which no trial depends: it has its own tensors, eval mode and no hooks.
MACHINERY = OF_TORCH | {"training"}


class Fused(torch.nn.Module):
    """Base of fused forwards, put before a module's class; ``_fused`` tells whether they still apply."""

    _fused: bool

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in MACHINERY and name not in self._parameters and not self.may_change(name):
            unfuse(self)
        super().__setattr__(name, value)

    def may_change(self, name: str) -> bool:
        """Whether the fused forward reads an attribute at each call."""
        return False


def unfuse(module: torch.nn.Module) -> None:
    """Give a fused module its own forward again, because one of its attributes has changed; nothing for other modules."""
    if "_fused" in module.__dict__:
        module.__dict__["_fused"] = False


def configuration(module: torch.nn.Module) -> tuple[Any, ...] | None:
    """All values, except input and parameters, on which a forward can depend; None if they cannot be hashed."""
    shapes = [(name, None if one is None else one.shape) for name, one in module._parameters.items()]
    plain = sorted((name, value) for name, value in vars(module).items() if name not in MACHINERY)
    key = (type(module), *shapes, *((name, type(value), value) for name, value in plain))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _gives(
    module: torch.nn.Module,
    own: dict[str, torch.Tensor],
    given: list[torch.Tensor],
    near: Callable[[torch.Tensor], bool],
) -> bool:
    """Whether a module in eval mode, with other numbers as its parameters, gives near results of the inputs' shapes and type."""
    trial = copy.copy(module)
    trial._parameters = {name: torch.nn.Parameter(one, requires_grad=False) for name, one in own.items()}
    trial.training = False
    try:
        with torch.no_grad():
            for one in given:
                got = trial.forward(one)
                if got.dtype != one.dtype or got.shape != one.shape or not near(got):
                    return False
    except Exception:  # another forward altogether
        return False
    return True


# Every step of the exponential from where the function is a line to where it is the next line, and values beyond.
_STEPS, _FAR = 401, (-1e4, -100.0, 100.0, 1e4)


class _FusedGelu(Fused):
    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if kwargs or len(args) != 1 or not self._fused or not args[0].is_floating_point():
            kept: torch.Tensor = super().forward(*args, **kwargs)
            return kept
        return _gelu(args[0])


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def fuse_activations(model: torch.nn.Module) -> int:
    """Give every module that agrees the fused forward, in place, for inference; return the number of these modules."""
    found = 0
    judged: dict[Any, bool] = {}
    for module in model.modules():
        if module._parameters or module._buffers or module._modules or "forward" in vars(module):
            continue
        key = configuration(module)
        if key is None or type(module).__module__.startswith("torch."):
            continue
        if key not in judged:
            judged[key] = all(_is_gelu(module, kind) for kind in TOLERANCES)
        if judged[key]:
            swap_forward(module, _FusedGelu, outermost=True)
            module.__dict__["_fused"] = True
            found += 1
    return found


def _is_gelu(module: torch.nn.Module, kind: torch.dtype) -> bool:
    """Whether a module equals the fused operation on values of all magnitudes, in several shapes."""
    values = torch.cat((torch.linspace(-8.0, 8.0, _STEPS), torch.tensor([*_FAR, 0.0]))).to(kind)
    want, bound = _gelu(values), TOLERANCES[kind]

    def near(found: torch.Tensor) -> bool:
        return torch.allclose(found.reshape(-1), want, rtol=bound, atol=bound)

    return _gives(module, {}, [values.view(shape) for shape in ((-1,), (7, -1), (2, 1, -1))], near)


_EPSILONS = ("variance_epsilon", "eps", "epsilon", "norm_eps")


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
        return torch.rms_norm(x, x.shape[-1:], weight, eps)


class _OnePlus(_FusedNorm):
    """The root-mean-square norm, times one plus the weight, in float32: in a shorter type the sum would lose the weight."""

    @staticmethod
    def fused(x: torch.Tensor, weight: Any, bias: Any, eps: float) -> torch.Tensor:
        if x.is_meta:
            return torch.empty_like(x)  # what the kernel makes
        if x.is_cuda and not torch.compiler.is_compiling():
            kernel = norm_kernel(x.device, _one_plus)
            if kernel is not None:
                return kernel(x, weight, eps)
        return _one_plus(x, weight, eps)


def _one_plus(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    normed = torch.rms_norm(x.float(), x.shape[-1:], None, eps)
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
        if all(_is_norm(module, form, width, eps, kind) for width in widths for kind in TOLERANCES):
            return form
    return None


def _is_norm(module: torch.nn.Module, form: type[_FusedNorm], width: int, eps: float, kind: torch.dtype) -> bool:
    """Whether a norm equals the fused operation on rows of very different magnitudes, in several leading shapes."""
    generator = torch.Generator().manual_seed(5)
    own = {name: torch.randn(width, generator=generator).to(kind) for name in module._parameters}
    rows = torch.randn(6, width, generator=generator)
    rows = (rows * torch.tensor([1e-4, 1e-3, 0.1, 1.0, 30.0, 1e3])[:, None] + 0.01).to(kind)
    want = form.fused(rows, own.get("weight"), own.get("bias"), eps).float()
    bound = TOLERANCES[kind] * want.abs().max()

    def near(found: torch.Tensor) -> bool:
        return bool((found.float().view(6, width) - want).abs().max() <= bound)

    return _gives(module, own, [rows.view(*leading, width) for leading in ((6,), (2, 3), (1, 2, 3))], near)
