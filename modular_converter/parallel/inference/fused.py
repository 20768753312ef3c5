"""Norms, activations and experts in few kernels, for modules that are shown to compute nothing else.

Libraries write a norm as six to ten kernels over full-width activations, which sharding does not divide. On two H200 they
took 55 of 260 ms of a long forward of llama, and their launches 3 ms of a decoded token; on two H100 those of gemma3,
which adds one to the weight in float32, took 44 of 115 ms of a decoded token. A module gets a fused forward only after
its results have agreed with it; its name decides nothing. It goes back to its own when one of its attributes is set.

The norm times one plus a weight has a kernel of its own, on GPUs with Triton: as operations of torch it is four kernels,
which read and write eight times the bytes. It is used only where it has given the same numbers as these.

Experts have fewer kernels around their products than the library's code has, and fewer bytes in compiled code. A plan that
slices each expert divides the two products, and none of the work around them: every rank sorts all routes, and
reads and writes a row of the hidden size for each. Here routes are sorted by keys of one or two bytes instead of eight (a
pass for each byte), a search in them gives the ends of the groups, and one kernel puts a token's rows back, weighs them,
and adds them up. On two H200 a forward of qwen3_moe on 16384 tokens took 106 ms instead of 129 (one device 204), and
1,290 kernels instead of 1,800. For a token of `generate` the library copies the weights of each route's expert together, and
multiplies the copy. In compiled code the product is here a sum that reads these weights where they are: a third of the bytes.
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


Combine = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# The library's names of the implementations (the second that of a token of `generate`), and of the two stacks of weights.
GROUPED, BATCHED, WEIGHTS = "grouped_mm", "batched_mm", ("gate_up_proj", "down_proj")
# Columns of a block of the kernel.
_BLOCK = 1 << 10


def _combine(rows, places, weights, found, width, routes: tl.constexpr, rounds: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < width
    total = tl.zeros((block,), tl.float32)
    for route in tl.static_range(routes):
        place = tl.load(places + token * routes + route)
        weight = tl.load(weights + token * routes + route).to(tl.float32)
        row = tl.load(rows + place * width + columns, mask=inside, other=0.0).to(tl.float32) * weight
        if rounds:
            row = row.to(found.dtype.element_ty).to(tl.float32)
        total += row
    tl.store(found + token * width + columns, total.to(found.dtype.element_ty), mask=inside)


def combined(rows: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of each token's rows, as operations of torch.

    Args:
        rows: [routes, hidden size], in any order.
        places: [tokens × routes of a token], the row of each route.
        weights: [tokens, routes of a token].
    """
    weighted = rows[places].view(*weights.shape, rows.shape[-1]) * weights.unsqueeze(-1)
    return weighted.sum(1).to(rows.dtype)


@functools.cache
def combine_kernel(device: torch.device, kind: torch.dtype, of_weights: torch.dtype) -> Combine:
    """The weighted sum in one kernel on a GPU, or its shape without data; ``combined`` where it cannot be compiled, or gives other numbers.

    Args:
        kind, of_weights: the types of rows and weights.
    """
    if device.type == "meta":  # what the kernel makes
        return lambda rows, places, weights: rows.new_empty(weights.shape[0], rows.shape[-1])
    if triton is None or device.type != "cuda":
        return combined
    compiled = triton.jit(_combine)

    def combine(rows: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        tokens, routes = weights.shape
        width = rows.shape[-1]
        found = rows.new_empty(tokens, width)
        if found.numel():
            grid, rounds = (tokens, -(-width // _BLOCK)), of_weights == kind
            compiled[grid](
                rows, places, weights.contiguous(), found, width, routes=routes, rounds=rounds, block=_BLOCK
            )
        return found

    generator = torch.Generator().manual_seed(5)
    rows, weights = torch.randn(40, 1040, generator=generator), torch.rand(5, 8, generator=generator)
    given = (rows.to(device, kind), torch.randperm(40, generator=generator).to(device), weights.to(device, of_weights))
    bound = 1e-5 if kind == torch.float32 else 1e-2
    try:
        if torch.allclose(combine(*given), combined(*given), rtol=bound, atol=bound):
            return combine
    except Exception as error:  # no compiler on this machine, or an unknown GPU
        logger.info("rows of experts are added up by four kernels: %s", one_line(error))
    return combined


@functools.cache
def _experts(device: torch.device, kind: torch.dtype, number: int) -> torch.Tensor:
    with torch.inference_mode(False):
        return torch.arange(number, dtype=kind, device=device)


def grouped(
    module: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, combine: Combine
) -> torch.Tensor:
    """The output of experts: [tokens, hidden size].

    Args:
        module: with the library's names of its weights and settings.
        hidden: [tokens, hidden size].
        index: [tokens, routes of a token], the expert of each route; ``weights`` of the same shape.
    """
    routes, experts = index.shape[-1], module.num_experts
    kind = torch.uint8 if experts <= 1 << 8 else torch.int16 if experts < 1 << 15 else torch.int64
    sorted_ids, order = torch.sort(index.reshape(-1).to(kind))
    numbers = _experts.__wrapped__ if index.is_meta else _experts
    ends = torch.searchsorted(sorted_ids, numbers(index.device, kind, experts), right=True, out_int32=True)
    up, down = _weights(module, True)
    found = F.grouped_mm(hidden[order // routes], up, offs=ends)
    found = F.grouped_mm(module._apply_gate(found).to(down.dtype), down, offs=ends)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return combine(found, places, weights)


def summed_products(module: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What ``grouped`` gives, for compiled code and few routes: each weight of a route is multiplied, and the rows are summed."""
    up, down = _weights(module, False)
    experts, rows = index.reshape(-1), hidden.repeat_interleave(index.shape[-1], 0)
    gated: torch.Tensor = module._apply_gate((up[experts] * rows.unsqueeze(1)).sum(-1))
    found = (down[experts] * gated.unsqueeze(1)).sum(-1).view(*weights.shape, -1)
    return (found * weights.unsqueeze(-1)).sum(1).to(hidden.dtype)


def _weights(module: Any, transposed: bool) -> list[torch.Tensor]:
    """Both stacks: [experts, out, in], or [experts, in, out] if transposed."""
    own = [getattr(module, name) for name in WEIGHTS]  # in a process group, the shares
    return own if module.is_transposed == transposed else [one.transpose(-2, -1) for one in own]


class _FewKernels(Fused):
    """Put before a class of experts: its grouped form in fewer kernels, and in compiled code that of a token, without gradients."""

    config: Any

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if len(args) == 3 and not kwargs and self._may_be_fused(*args):
            if torch.compiler.is_compiling():
                return summed_products(self, *args)
            return grouped(self, *args, combine_kernel(args[0].device, args[0].dtype, args[2].dtype))
        kept: torch.Tensor = super().forward(*args, **kwargs)
        return kept

    def _may_be_fused(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> bool:
        own = [getattr(self, name) for name in WEIGHTS]
        return (
            self._fused
            and self.config._experts_implementation == (BATCHED if torch.compiler.is_compiling() else GROUPED)
            and not torch.is_grad_enabled()
            and index.shape == weights.shape
            and hidden.shape[:-1] == index.shape[:1]
            and all(type(one) is torch.nn.Parameter and one.dtype == hidden.dtype for one in own)
            and weights.dtype in (hidden.dtype, torch.float32)
        )

    def may_change(self, name: str) -> bool:
        """The settings that choose an implementation, and the class, which a sum of the output is put before later."""
        return name in ("config", "__class__")


def fuse_experts(model: torch.nn.Module) -> int:
    """Give all experts that agree the form of fewer kernels, in place, for inference; return the number of these modules.

    Before anything is put around the outputs of modules: a sum over ranks comes after this forward.
    """
    found = 0
    for module in model.modules():
        if tuple(module._parameters) == WEIGHTS and "forward" not in vars(module) and _is_grouped(module):
            swap_forward(module, _FewKernels, outermost=True)
            module.__dict__["_fused"] = True
            found += 1
    return found


def _is_grouped(module: Any) -> bool:
    """Whether a module's own grouped form gives the same numbers, with other weights of a few small experts."""
    if getattr(getattr(module, "config", None), "_experts_implementation", None) != GROUPED:
        return False
    if getattr(module, "_is_expert_parallel", False):  # an index may be beyond the experts then
        return False
    experts, hidden, inner, tokens, routes = 5, 16, 8, 7, 2
    generator = torch.Generator().manual_seed(5)
    trial = copy.copy(module)
    trial.training = False
    try:
        shapes = ((hidden, 2 * inner), (inner, hidden))
        drawn = [torch.randn(experts, *(s if module.is_transposed else s[::-1]), generator=generator) for s in shapes]
        trial._parameters = {name: torch.nn.Parameter(one) for name, one in zip(WEIGHTS, drawn)}
        trial.num_experts = experts
        given = torch.randn(tokens, hidden, generator=generator)
        index = torch.rand(tokens, experts - 1, generator=generator).argsort(-1)[:, :routes]  # the last has no route
        weights = torch.rand(tokens, routes, generator=generator)
        with torch.no_grad():
            want = trial.forward(given, index, weights)
            found = (grouped(trial, given, index, weights, combined), summed_products(trial, given, index, weights))
            return all(torch.allclose(one, want, rtol=1e-5, atol=1e-5) for one in found)
    except Exception as error:  # other names or another meaning of the weights
        logger.info("%s keeps its own forward: %s", type(module).__name__, one_line(error))
        return False
