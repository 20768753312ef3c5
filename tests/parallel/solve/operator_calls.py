"""Calls of torch that state sizes in other ways, write in place, or run several operators: ``operator: form`` -> case."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.parallel.solve.operator_cases import A, Call, Draw


CALLS: dict[str, Callable[[Draw], Call]] = {}
# Calls in which everything stays whole.
MUTE_CALLS = {
    *("squeeze: where_a_share_may_be_one", "slice: tensor_split_of_one", "slice: from_behind_by_threes", "view: as_wider"),
    *("slice: shifted_ends", "_local_scalar_dense: tolist", "_local_scalar_dense: numpy", "_grouped_mm: of_batches"),
    *("slice: unsafe_chunks", "expand: summed_as_another", "native_batch_norm: in_training", "frexp: of_two_results"),
    "linalg_solve_triangular: over_batches",
}  # fmt: skip


def call(name: str, *shapes: str, **whole: Any) -> Callable[[Callable[..., Any]], Any]:
    """Register a call on tensors of some shapes: letters are random lengths, digits are themselves, ``a+b`` is a sum.

    The tensors are ``m.x``, ``m.y``, ``m.z``, and the lengths ``m.a``, ``m.b``, …
    """

    def register(run: Callable[..., Any]) -> Any:
        def make(draw: Draw) -> Call:
            sizes = dict(zip("abcde", draw.lengths(5)))
            tensors = {n: draw.positive(*(_length(axis, sizes) for axis in shape.split())) for n, shape in zip("xyz", shapes)}  # fmt: skip
            return Call(run, tensors, {n: make(draw, sizes) for n, make in whole.items()}, sizes)

        assert name not in CALLS
        CALLS[name] = make
        return run

    return register


def _length(axis: str, sizes: dict[str, int]) -> int:
    return sum(int(part) if part.isdigit() else sizes[part] for part in axis.split("+"))


# Slices
call("slice: narrowed_by_names", "c a+b")(lambda m: m.x.narrow(length=m.a, start=0, dim=1))
call("slice: narrowed_by_the_function", "c a+b")(lambda m: torch.narrow(m.x, 1, m.a, m.b))
call("slice: narrowed_inside", "c a+b+d")(lambda m: m.x.narrow(1, m.a, m.b))
call("slice: narrowed_from_behind", "c a+b")(lambda m: m.x.narrow(-1, -m.b, m.b))
call("slice: narrowed_inside_from_behind", "c a+b+b")(lambda m: m.x.narrow(-1, -2 * m.b, m.b))
call("slice: to_the_end_from_behind", "c a+b")(lambda m: m.x[..., : -m.b])
call("slice: from_behind_to_behind", "c a+b+b")(lambda m: m.x[:, -2 * m.b : -m.b])
call("slice: of_two_dimensions", "a+b c+d 4")(lambda m: m.x[: m.a, m.c :])
call("slice: of_equal_lengths", "6 6+b")(lambda m: m.x[:6, :6])
call("slice: beside_an_equal_index", "a+b 4+c 6")(lambda m: m.x[: m.a, m.a - 1 - (m.a - 1)])
call("slice: half", "a b 4")(lambda m: m.x[..., : m.x.shape[1] // 2, :])
call("slice: from_behind_by_twos", "c a+a")(lambda m: m.x[:, -2 * m.a :: 2])
call("slice: from_behind_by_threes", "3 12")(lambda m: m.x[:, -10::3])
call("slice: to_behind_by_twos", "c a+a")(lambda m: m.x[:, :-1:2])
call("slice: tensor_split", "c 12 4")(lambda m: m.x.tensor_split(3, 1))
call("slice: tensor_split_of_one", "12")(lambda m: m.x.tensor_split(3))
call("slice: tensor_split_at", "c a+b")(lambda m: m.x.tensor_split([m.a], 1))
call("slice: shifted_ends", "9")(lambda m: m.x[1:] - m.x[:-1])


@call("slice: written", "c a+b", "c a")
def _written(m):
    whole = m.x.clone()
    whole[:, : m.a] = m.y
    return whole


# Splits
call("split: by_names", "c a+a")(lambda m: m.x.split(dim=1, split_size=m.a))
call("split_with_sizes: by_names", "c a+b")(lambda m: m.x.split_with_sizes(dim=1, split_sizes=[m.a, m.b]))
call("split_with_sizes: of_the_function", "c a+b")(
    lambda m: torch.split(m.x, dim=1, split_size_or_sections=[m.a, m.b])
)
call("split: chunks_by_names", "c a+a")(lambda m: torch.chunk(m.x, dim=-1, chunks=2))
call("split: beyond", "c a")(lambda m: m.x.split(m.a + m.b, 1))
call("unbind: iterated", "2 a")(lambda m: [row * 2 for row in m.x])
call("slice: unsafe_chunks", "c a+a")(lambda m: [*m.x.unsafe_chunk(2, 1), m.x[:, : m.a]])

# Shapes taken over
call("view: as_another", "a b", "a 2 3")(lambda m: m.x[:, :6].reshape_as(m.y) * m.y)
call("view: view_as", "a 6", "a 2 3")(lambda m: m.x.view_as(m.y) + m.y)
call("view: with_a_shape", "a b+b")(lambda m: m.x.view(*m.x.shape[:-1], -1, m.b))
call("view: by_name", "a 2 b")(lambda m: m.x.flatten(1).reshape(shape=(m.a, 2, m.b)))
call("view: unflattened_first", "a b")(lambda m: m.x.flatten().unflatten(dim=0, sizes=(m.a, m.b)))
call("view: as_wider", "3 12")(lambda m: m.x.view(torch.float64))
call("view: as_integers", "a b")(lambda m: m.x.view(torch.int32))
call("expand: as_another", "a 1", "a b")(lambda m: m.x.expand_as(m.y))
call("expand: summed_as_another", "a 1", "a b")(lambda m: m.x.expand_as(m.y).sum(1))
call("expand: flat_as_another", "a 1", "a b")(lambda m: m.x.expand_as(m.y).flatten())
call("expand: to_a_length", "a 1", "c b")(lambda m: m.x.expand(m.a, m.y.shape[1]))
call("expand: by_name", "a 1")(lambda m: m.x.expand(size=(m.a, m.b)))
call("expand: broadcast_to", "1 a")(lambda m: torch.broadcast_to(m.x, (m.b, m.a)))
call("expand: broadcast_tensors", "a", "b 1")(lambda m: torch.broadcast_tensors(m.x, m.y))
call("expand: summed_broadcast_tensors", "a", "b 1")(lambda m: torch.broadcast_tensors(m.x, m.y)[1].sum(1))
call("expand: meshgrid", "a", "b", "c")(lambda m: torch.meshgrid(m.x, m.y, m.z, indexing="ij"))
call("expand: meshgrid_of_columns", "a", "b", "c")(lambda m: torch.meshgrid([m.x, m.y, m.z], indexing="xy"))
call("expand: repeat_interleave", "a b")(lambda m: m.x.repeat_interleave(m.c, 1))
call("expand: heads", "a b")(lambda m: m.x[:, None].expand(m.a, m.c, m.b).reshape(m.a * m.c, m.b))
call("repeat: tile", "a b")(lambda m: m.x.tile((m.c, 1)))
call("expand: interleaved_beside_a_weight", "a b", "c")(
    lambda m: m.x.repeat_interleave(m.c, dim=1).unflatten(1, (m.b, -1)) * m.y
)
call("expand: interleaved_by_a_number", "a b", "4")(
    lambda m: m.x.repeat_interleave(4, 1).unflatten(1, (m.b, -1)) * m.y
)
call("repeat: tile_beside_a_weight", "a b", "c 1 1")(lambda m: m.x.tile((m.c, 1)).unflatten(0, (-1, m.a)) * m.y)
call("repeat: tile_by_a_number", "a b", "4 1 1")(lambda m: m.x.tile(4, 1).unflatten(0, (-1, m.a)) * m.y)
call("repeat: beside_a_weight", "a b", "c 1 1")(lambda m: m.x.repeat(m.c, 1, 1) * m.y)
call("repeat: by_a_number", "a b", "4 1 1")(lambda m: m.x.repeat(4, 1, 1) * m.y)
call("repeat: by_name", "a b")(lambda m: m.x.repeat(repeats=(1, m.c)))
call("full: by_names", "a b")(lambda m: m.x + torch.full(fill_value=m.a, size=(m.a, m.b)) * 0)
call("new_full: by_names", "a b")(lambda m: m.x + m.x.new_full(fill_value=m.b, size=(m.a, m.b)) * 0)
call("zeros: with_a_shape", "a b")(lambda m: m.x + torch.zeros(m.x.shape))

# Written in place, and shapes changed in place
call("addmm: in_place", "a b", "a c", "c b")(lambda m: m.x.new_zeros(m.x.shape).addmm_(m.y, m.z) + m.x)
call("t: in_place", "a b")(lambda m: m.x.clone().t_() * 2)
call("transpose: in_place", "a b 4", "4 c")(lambda m: m.x.clone().transpose_(0, 1) @ m.y)
call("unsqueeze: in_place", "a b")(lambda m: m.x.clone().unsqueeze_(0) * 2)
call("squeeze: in_place", "a 1 b", "b c")(lambda m: m.x.clone().squeeze_(1) @ m.y)
call("cumsum: in_place", "a b")(lambda m: m.x.clone().cumsum_(0))

# Forms that change which axes are looked at together
call("squeeze: where_a_share_may_be_one", "4 6")(lambda m: m.x.squeeze())
call("squeeze: named", "a 1 b 1")(lambda m: m.x.squeeze((1, -1)))
call("permute: by_name", "a b c")(lambda m: m.x.permute(dims=(-1, 0, 1)))
call("permute: movedim", "a b c")(lambda m: m.x.movedim((0, 1), (2, 0)))
call("transpose: of_matrices", "a b c")(lambda m: m.x.mT)
call("cat: by_names", "c a", "c b")(lambda m: torch.cat(dim=1, tensors=[m.x, m.y]))
call("cat: viewed", "a b", "a b")(lambda m: torch.cat([m.x, m.y], 1).view(m.a, 2, m.b))
call("stack: flattened", "a b", "a b")(lambda m: torch.stack([m.x, m.y], -1).flatten(-2))
call("stack: before_the_last", "a b", "a b")(lambda m: torch.stack([m.x, m.y], -2) * 2)
call("native_batch_norm: in_training", "a b c")(lambda m: F.batch_norm(m.x, None, None, training=True))
call("native_layer_norm: with_statistics", "a b c", "c", "c")(
    lambda m: torch.native_layer_norm(m.x, (m.c,), m.y, m.z, 1e-5)
)
call("native_group_norm: with_statistics", "a 6 c")(
    lambda m: torch.native_group_norm(m.x, None, None, m.x.shape[0], 6, m.x.shape[2], 2, 1e-5)
)
call("_scaled_dot_product_flash_attention_for_cpu: with_statistics", "a b c 16", "a b d 16")(
    lambda m: A._scaled_dot_product_flash_attention_for_cpu(m.x, m.y, m.y)
)
call("_grouped_mm: of_batches", "4 16 16", "4 16 32")(lambda m: torch._grouped_mm(m.x.bfloat16(), m.y.bfloat16()))
call("linalg_solve_triangular: broadcast", "b b", "a b c")(
    lambda m: torch.linalg.solve_triangular(m.x.triu() + 9 * torch.eye(m.b), m.y, upper=True)
)
call("linalg_solve_triangular: over_batches", "a b b", "b c")(
    lambda m: torch.linalg.solve_triangular(m.x.triu() + 9 * torch.eye(m.b), m.y, upper=True)
)
call("bmm: broadcast", "a b c 4", "b 4 6")(lambda m: m.x @ m.y)
call("mv: by_rows", "a b 4", "4")(lambda m: m.x @ m.y)
call("mm: outer", "a", "b")(lambda m: torch.einsum("i,j->ij", m.x, m.y) + 0 * (m.x[:, None] @ m.y[None]))
call("bmm: tensordot", "a b c", "b c 4")(lambda m: torch.tensordot(m.x, m.y, 2)[None] @ torch.ones(1, 4, 4))
call("mean: square", "a b")(lambda m: m.x * m.x.pow(2).mean(keepdim=True, dim=(-1,)))
call("topk: by_names", "a b")(lambda m: torch.topk(input=m.x, k=2, dim=-2))
call("sort: argsort", "a b")(lambda m: m.x.argsort(descending=True, dim=0))
call("index: along_a_dimension", "a b", i=lambda d, s: d.ids(4, 1, 3))(
    lambda m: m.x.take_along_dim(m.i, 1) + m.x[:, m.i[0]]
)
call("index_select: by_names", "a b", i=lambda d, s: d.ids(4, 3))(lambda m: torch.index_select(m.x, index=m.i, dim=1))
call("gather: by_names", "a b")(lambda m: torch.gather(m.x, index=m.x.argsort(1), dim=1))
call("constant_pad_nd: shifted", "a b c")(lambda m: F.pad(m.x, (0, 0, 1, -1)))

# Values that the program takes
call("_local_scalar_dense: tolist", "a")(lambda m: torch.tensor(m.x.tolist()) * 2)
call("_local_scalar_dense: numpy", "a b")(lambda m: torch.from_numpy(m.x.detach().numpy()) * 2)


@call("frexp: of_two_results", "a b")
def _two_results(m):
    mantissa, exponent = m.x.frexp()
    return mantissa + exponent
