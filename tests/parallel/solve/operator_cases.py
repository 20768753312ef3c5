"""A call of each operator that the solver has a rule for, with random shapes and arguments, as a model would write it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F


A = torch.ops.aten


@dataclass
class Call:
    """Tensors whose axes may be split, tensors that are whole on each rank, integers of the code, and the call."""

    run: Callable[[Any], Any]
    split: dict[str, torch.Tensor]
    whole: dict[str, torch.Tensor] = field(default_factory=dict)
    sizes: dict[str, Any] = field(default_factory=dict)


class Draw:
    """Random lengths and tensors. Lengths are even, and differ, so that no two axes are taken for each other."""

    def __init__(self, seed: str) -> None:
        self.choice = random.Random(seed)
        self.left = self.choice.sample([4, 6, 8, 10, 12, 14], 6)
        self.generator = torch.Generator().manual_seed(self.choice.randrange(2**31))

    def lengths(self, number: int) -> list[int]:
        return [self.left.pop() for _ in range(number)]

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def positive(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator) + 0.5

    def ids(self, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(high, shape, generator=self.generator)

    def dim(self, rank: int) -> int:
        return self.choice.randrange(-rank, rank)


Case = Callable[[Draw], Call]
CASES: dict[str, Case] = {}


def case(names: str) -> Callable[[Callable[[Draw, str], Call]], Any]:
    """Register a case for each of the operators."""

    def register(make: Callable[[Draw, str], Call]) -> Any:
        for name in names.split():
            CASES[name] = lambda draw, name=name: make(draw, name)
        return make

    return register


def _on(tensors: dict[str, torch.Tensor], run: Callable[..., Any], **more: Any) -> Call:
    return Call(lambda m: run(*(getattr(m, name) for name in tensors)), tensors, **more)


@case("clone neg sign floor ceil round triu tril detach alias zeros_like ones_like _to_copy lift_fresh full_like")
def _same_shape(draw, name):
    given = (1.5,) if name == "full_like" else ()
    more = {"dtype": torch.float64} if name == "_to_copy" else {}
    return _on({"x": draw.normal(*draw.lengths(3))}, lambda x: getattr(A, name)(x, *given, **more))


@case("zero fill masked_fill")
def _in_place(draw, name):
    shape = draw.lengths(3)
    if name == "masked_fill":
        return _on({"x": draw.normal(*shape), "y": draw.normal(*shape[1:]) > 0}, lambda x, y: x.masked_fill(y, -1.0))
    return _on({"x": draw.normal(*shape)}, lambda x: x.clone().zero_() if name == "zero" else x.clone().fill_(2.5))


@case("empty_like rand_like randn_like bernoulli")
def _random(draw, name):
    """Only zeros of what is random are compared: its shape."""
    run = (lambda x: x.sigmoid().bernoulli()) if name == "bernoulli" else getattr(torch, name)
    return _on({"x": draw.normal(*draw.lengths(3))}, lambda x: A.mul(A.nan_to_num(run(x), 0, 0, 0), 0.0))


@case("add sub mul div floor_divide remainder fmod eq ne lt gt le ge where complex polar")
def _two(draw, name):
    shape = draw.lengths(3)
    tensors = {"x": draw.normal(*shape), "y": draw.positive(*shape[draw.choice.randrange(3) :])}
    if name == "where":
        return _on({**tensors, "z": draw.normal(*shape) > 0}, lambda x, y, z: torch.where(z, x, y))
    if name in ("complex", "polar"):
        tensors["y"] = draw.positive(*shape)
    return _on(tensors, getattr(torch, name))


@case("view _unsafe_view _reshape_alias")
def _views(draw, name):
    rows, heads, width = draw.lengths(3)
    joined = (-1, heads * width)

    def run(m):
        if name == "_reshape_alias":  # an inner call of torch's, which knows the shape at hand
            local = (m.x.shape[0], m.x.shape[1] * m.x.shape[2])
            return A._reshape_alias(m.x, local, (local[1], 1))
        if name == "_unsafe_view":
            return A._unsafe_view(m.x, joined)
        return getattr(m.x.flatten(1), name)(rows, m.heads, m.width)

    x = draw.normal(rows, heads, width)
    return Call(run, {"x": x}, sizes={"heads": heads, "width": width})


@case("t transpose permute unsqueeze squeeze flip roll")
def _axes(draw, name):
    x, order = draw.normal(*draw.lengths(3)), draw.choice.sample(range(3), 3)
    a, b = draw.dim(3), draw.dim(3)
    runs = {
        "t": lambda x: x.flatten(1).t(), "transpose": lambda x: x.transpose(a, b),
        "permute": lambda x: x.permute(order), "unsqueeze": lambda x: x.unsqueeze(a),
        "squeeze": lambda x: x.unsqueeze(a).squeeze(), "flip": lambda x: x.flip(a), "roll": lambda x: x.roll(1, a),
    }  # fmt: skip
    return _on({"x": x}, runs[name])


@case("expand repeat")
def _stretched(draw, name):
    rows, width, times = draw.lengths(3)
    run = (lambda m: m.x.expand(m.times, -1, -1)) if name == "expand" else (lambda m: m.x.repeat(m.times, 1, 1))
    return Call(run, {"x": draw.normal(rows, width)}, sizes={"times": times})


@case("cat stack copy")
def _joined(draw, name):
    rows, width, other = draw.lengths(3)
    x, y = draw.normal(rows, width), draw.normal(rows, other if name == "cat" else width)
    at = draw.dim(3)
    runs = {"cat": lambda x, y: torch.cat([x, y], 1), "stack": lambda x, y: torch.stack([x, y], at)}
    return _on({"x": x, "y": y}, runs.get(name, lambda x, y: x.clone().copy_(y)))


@case("constant_pad_nd slice select split split_with_sizes unbind as_strided unfold")
def _cut(draw, name):
    rows, first, second = draw.lengths(3)
    runs = {
        "constant_pad_nd": lambda m: F.pad(m.x, (1, 0)), "slice": lambda m: m.x[:, : m.first],
        "select": lambda m: m.x[:, 1], "split": lambda m: m.x.split(m.rows, 0),
        "split_with_sizes": lambda m: m.x.split([m.first, m.second], 1), "unbind": lambda m: m.x.unbind(1),
        "as_strided": lambda m: m.x.as_strided((rows, 2), (first + second, 1)), "unfold": lambda m: m.x.unfold(0, 2, 1),
    }  # fmt: skip
    x = draw.normal(2 * rows if name == "split" else rows, first + second, 4)
    return Call(runs[name], {"x": x}, sizes={"first": first, "second": second, "rows": rows})


@case("glu view_as_complex view_as_real")
def _pairs(draw, name):
    rows, width = draw.lengths(2)
    if name == "glu":
        return _on({"x": draw.normal(rows, width, 2 * rows)}, lambda x: F.glu(x, 1))
    if name == "view_as_complex":
        return _on({"x": draw.normal(rows, width, 2)}, torch.view_as_complex)
    return _on({"x": draw.normal(rows, width), "y": draw.normal(rows, width)}, lambda x, y: torch.view_as_real(torch.complex(x, y)))  # fmt: skip


@case("mm bmm addmm baddbmm mv addmv dot")
def _products(draw, name):
    batch, rows, inner, width = draw.lengths(4)
    batched = (batch,) if "bmm" in name else ()
    x = draw.normal(inner) if name == "dot" else draw.normal(*batched, rows, inner)
    y = draw.normal(inner) if name in ("mv", "addmv", "dot") else draw.normal(*batched, inner, width)
    if not name.startswith(("addm", "badd")):
        return _on({"x": x, "y": y}, getattr(torch, name))
    bias = draw.normal(*(torch.mv(x, y) if name == "addmv" else x @ y).shape)
    return _on({"bias": bias, "x": x, "y": y}, getattr(torch, name))


@case("_grouped_mm")
def _grouped(draw, name):
    experts, rows = 4, 16
    ends = torch.tensor([4, 8, 12, 16], dtype=torch.int32)
    x, y = draw.normal(rows, 16).bfloat16(), draw.normal(experts, 16, 32).bfloat16()
    return Call(lambda m: F.grouped_mm(m.x, m.y, offs=m.ends), {"x": x, "y": y}, {"ends": ends})


@case("convolution")
def _convolved(draw, name):
    batch, channels, out = draw.lengths(3)
    groups = draw.choice.choice([1, 2])
    x, weight = draw.normal(batch, 2 * channels, 9), draw.normal(2 * out, 2 * channels // groups, 3)
    return Call(
        lambda m: F.conv1d(m.x, m.weight, groups=m.groups), {"x": x, "weight": weight}, sizes={"groups": groups}
    )


@case("linalg_solve_triangular")
def _solved(draw, name):
    batch, rows, columns = draw.lengths(3)
    left = draw.normal(batch, rows, rows).triu() + 3 * torch.eye(rows)
    run = lambda a, b: torch.linalg.solve_triangular(a, b, upper=True)  # noqa: E731
    return _on({"a": left, "b": draw.normal(batch, rows, columns)}, run)


@case(
    "amax amin any all prod logsumexp var std max min median norm linalg_vector_norm count_nonzero argmax argmin sum mean"
)
def _reduced(draw, name):
    at = draw.dim(3)
    run = torch.linalg.vector_norm if name == "linalg_vector_norm" else getattr(torch, name)
    if name == "norm":  # its plain form is another operator
        return _on({"x": draw.normal(*draw.lengths(3))}, lambda x: A.norm(x, 2, [at]))
    x = draw.normal(*draw.lengths(3))
    if name in ("any", "all"):  # one entry decides
        x = torch.full_like(x, name == "all", dtype=torch.bool)
        x[0, 0, 0] = name == "any"
    return _on({"x": x}, lambda x: run(x, dim=at))


@case("cumsum cumprod sort topk kthvalue logcumsumexp cummax")
def _scanned(draw, name):
    at = draw.dim(3)
    given = (2, at) if name in ("topk", "kthvalue") else (at,)
    return _on({"x": draw.normal(*draw.lengths(3))}, lambda x: getattr(torch, name)(x, *given))


@case("_local_scalar_dense nonzero histc bincount equal")
def _values(draw, name):
    length = draw.lengths(1)[0]
    x = draw.normal(length)
    runs = {
        "_local_scalar_dense": lambda x: x.clone() * x.sum().item(), "nonzero": torch.nonzero,
        "histc": lambda x: x.histc(3), "bincount": torch.bincount,
    }  # fmt: skip
    if name == "equal":  # true of the first half alone
        x = torch.cat([draw.positive(length // 2), -draw.positive(length // 2)])
        return _on({"x": x}, lambda x: x * float(torch.equal(x, x.abs())))
    return _on({"x": draw.ids(3, length) if name == "bincount" else x}, runs[name])


@case("_softmax _log_softmax _safe_softmax")
def _softmaxes(draw, name):
    at, x = draw.dim(3), draw.normal(*draw.lengths(3))
    if name == "_safe_softmax":
        return _on({"x": x}, lambda x: A._safe_softmax(x, at))
    return _on({"x": x}, lambda x: (F.softmax if name == "_softmax" else F.log_softmax)(x, at))


@case("native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit_no_training")
def _norms(draw, name):
    batch, channels, places = draw.lengths(3)
    x, weight, bias = draw.normal(batch, channels, places), draw.normal(channels), draw.normal(channels)
    last = {"x": x.transpose(1, 2).clone(), "weight": weight}
    if name == "native_layer_norm":
        return _on(last | {"bias": bias}, lambda x, w, b: F.layer_norm(x, (channels,), w, b))
    both = {"x": x, "weight": weight, "bias": bias}
    if name == "native_group_norm":
        return _on(both, lambda x, w, b: F.group_norm(x, 2, w, b))
    both |= {"mean": draw.normal(channels), "var": draw.positive(channels)}
    if name == "native_batch_norm":
        return _on(both, lambda x, w, b, mean, var: A.native_batch_norm(x, w, b, mean, var, False, 0.1, 1e-5)[0])
    return _on(both, lambda x, w, b, m, v: A._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5)[0])


@case("_scaled_dot_product_flash_attention_for_cpu")
def _attention(draw, name):
    batch, heads, rows, keys = draw.lengths(4)
    q, k, v = (
        draw.normal(batch, heads, rows, 16),
        draw.normal(batch, heads, keys, 16),
        draw.normal(batch, heads, keys, 16),
    )
    return _on({"q": q, "k": k, "v": v}, F.scaled_dot_product_attention)


@case("avg_pool2d max_pool2d_with_indices adaptive_max_pool2d _adaptive_avg_pool2d upsample_bilinear2d"
      " upsample_nearest2d upsample_bicubic2d upsample_nearest1d _upsample_bilinear2d_aa")  # fmt: skip
def _pooled(draw, name):
    batch, channels, rows = draw.lengths(3)
    shape = (batch, channels, rows) if "1d" in name else (batch, channels, rows, 8)
    size = (5,) if "1d" in name else (5, 3)
    given = (size, False) if "linear" in name or "bicubic" in name else (size,)
    given = ((2, 2),) if name in ("avg_pool2d", "max_pool2d_with_indices") else given
    return _on({"x": draw.normal(*shape)}, lambda x: getattr(A, name)(x, *given))


@case("im2col")
def _windows(draw, name):
    batch, channels, rows = draw.lengths(3)
    return _on({"x": draw.normal(batch, channels, rows, 6)}, lambda x: F.unfold(x, 2))


@case("embedding index index_select gather")
def _looked_up(draw, name):
    rows, width, number = draw.lengths(3)
    x, ids = draw.normal(rows, width), draw.ids(rows, number)
    runs = {
        "embedding": lambda m: F.embedding(m.ids, m.x), "index": lambda m: m.x[m.ids],
        "index_select": lambda m: m.x.index_select(0, m.ids), "gather": lambda m: m.x.gather(0, m.at),
    }  # fmt: skip
    at = {"at": draw.ids(rows, number, width)} if name == "gather" else {}
    return Call(runs[name], {"x": x, **at}, {"ids": ids})


@case("scatter scatter_reduce index_add scatter_add index_put index_copy")
def _written(draw, name):
    rows, width = draw.lengths(2)
    number = 3
    ids, y = torch.randperm(rows, generator=draw.generator)[:number], draw.normal(number, width)
    tensors = {"x": draw.normal(rows, width), "y": y}
    if name.startswith("scatter"):
        tensors["at"] = ids[:, None].repeat(1, width)
    runs = {
        "scatter": lambda m: m.x.scatter(0, m.at, m.y), "scatter_add": lambda m: m.x.scatter_add(0, m.at, m.y),
        "scatter_reduce": lambda m: m.x.scatter_reduce(0, m.at, m.y, "amax"),
        "index_add": lambda m: m.x.index_add(0, m.ids, m.y), "index_copy": lambda m: m.x.index_copy(0, m.ids, m.y),
        "index_put": lambda m: m.x.index_put((m.ids,), m.y),
    }  # fmt: skip
    return Call(runs[name], tensors, {"ids": ids})


@case("ones full empty zeros new_ones new_full new_empty new_zeros")
def _uniform(draw, name):
    rows, width = draw.lengths(2)
    value = (2.5,) if "full" in name else ()
    if name.startswith("new_"):
        return Call(lambda m: m.x + 0 * getattr(m.x, name)((m.rows, m.width), *value).nan_to_num(0, 0, 0), {"x": draw.normal(rows, width)}, sizes={"rows": rows, "width": width})  # fmt: skip
    return Call(lambda m: m.x + 0 * getattr(torch, name)((m.rows, m.width), *value).nan_to_num(0, 0, 0), {"x": draw.normal(rows, width)}, sizes={"rows": rows, "width": width})  # fmt: skip


@case("arange randn rand randint eye linspace scalar_tensor randperm")
def _created(draw, name):
    length = draw.lengths(1)[0]
    given = {"randint": (3, (length,)), "linspace": (0, 1, length), "scalar_tensor": (2.0,), "eye": (length,)}
    make = lambda m: getattr(torch, name)(*given.get(name, (length,)))  # noqa: E731
    return Call(lambda m: m.x * 1.0 + (0 * make(m) if "rand" in name else make(m)), {"x": draw.normal(length)})
