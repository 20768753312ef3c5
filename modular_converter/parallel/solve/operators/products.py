"""Axis rules of products: which axes are contracted, and which pass."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import Seq, size
from modular_converter.parallel.solve.flow import Flow, Lookup, argument, integer_argument, ref
from modular_converter.parallel.solve.operators.traits import Linear, OperatorTable, Traits, opaque
from modular_converter.parallel.trace.graph import Op, Ref, Source


TABLE = OperatorTable()
_CONVOLUTIONS = "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d"


@TABLE.operator(
    "mm bmm", Traits(product=True, linear=Linear.EACH), "linear matmul __matmul__ __rmatmul__ mm bmm einsum tensordot"
)
@TABLE.operator("addmm baddbmm mv addmv", Traits(product=True), "addmm baddbmm mv")
@TABLE.operator("dot")
def mm(flow: Flow, op: Op) -> None:
    """``[m, k] @ [k, n]``; ``addmm`` adds its first operand, which is broadcast."""
    shift = 1 if op.name.startswith(("add", "badd")) else 0
    a, b = ref(op.args[shift]), ref(op.args[shift + 1])
    left, right = flow.of(a), flow.of(b)
    flow.contract(left[-1], right[-2 if len(right) > 1 else 0], a, b)
    if len(left) == 3:
        flow.axes.unify(left[0], right[0])
    dims = left[:-1] + right[-1:] if len(right) > 1 else left[:-1]
    flow.set(op.outputs[0], list(dims))
    if shift:
        flow.align(flow.of(ref(op.args[0])), dims)


@TABLE.operator("_grouped_mm", Traits(product=True), "_grouped_mm grouped_mm")
def grouped_mm(flow: Flow, op: Op) -> None:
    """Rows, sorted by expert, times the experts' matrices: ``[s, k] x [e, k, n]``; the axis of experts is looked up."""
    a, b = ref(op.args[0]), ref(op.args[1])
    left, right = flow.of(a), flow.of(b)
    if (len(left), len(right)) != (2, 3):
        return opaque(flow, op)
    flow.contract(left[-1], right[-2], a, b)
    offsets = argument(op, 2, "offs")
    flow.axes.keep_whole("rows are sorted by expert", left[0])
    indices = (offsets.id,) if isinstance(offsets, Ref) else ()
    flow.lookups.append(Lookup(right[0], flow.index, b, indices))
    flow.set(op.outputs[0], [left[0], right[-1]])


@TABLE.operator("convolution", Traits(product=True), _CONVOLUTIONS)
def convolution(flow: Flow, op: Op) -> None:
    """Channels are contracted, in groups if there are several; positions stay whole."""
    source, weight = ref(op.args[0]), ref(op.args[1])
    groups = integer_argument(op.args[8], 1)
    dims, kernel, out = flow.of(source), flow.of(weight), op.outputs[0]
    flow.axes.keep_whole("a convolution over positions", *dims[2:], *kernel[2:])
    first, second = (1, 0) if op.args[6] else (0, 1)
    spatial = [flow.axes.leaf(length) for length in flow.shape(out)[2:]]
    flow.axes.keep_whole("a convolution over positions", *spatial)
    if groups == 1:
        flow.contract(dims[1], kernel[second], source, weight)
        channels = kernel[first]
    else:
        channels = _grouped_channels(flow, op, dims[1], kernel, groups, bool(op.args[6]))
    if isinstance(op.args[2], Ref):
        flow.axes.unify(flow.of(op.args[2].id)[0], channels)
    flow.set(out, [dims[0], channels, *spatial])


def _grouped_channels(flow: Flow, op: Op, entering: Seq, kernel: list[Seq], groups: int, transposed: bool) -> Seq:
    group = flow.axes.leaf(groups)
    inner = flow.axes.leaf(size(entering) // groups)
    flow.axes.unify(entering, group + inner)
    if transposed:
        flow.axes.unify(kernel[0], group + inner)
        outer, summed = kernel[1], inner
    else:
        outer, summed = flow.axes.leaf(size(kernel[0]) // groups), kernel[1]
        flow.axes.unify(kernel[0], group + outer)
    flow.contract(inner, summed, ref(op.args[0]), ref(op.args[1]))
    given = flow.call_integers(op, *_CONVOLUTIONS.split()) or ()
    found = next((s for s in reversed(given) if s.value == groups), Source("const", groups))
    flow.require(group, found, "the groups of a convolution")
    return group + outer


@TABLE.operator("linalg_solve_triangular")
def solve_triangular(flow: Flow, op: Op) -> None:
    """``A X = B`` over batches: the dimensions of ``A`` stay whole; columns of ``B`` pass, or rows for ``X A = B``."""
    left, right = flow.of(ref(op.args[0])), flow.of(ref(op.args[1]))
    for a, b in zip(left[:-2], right[:-2]):
        flow.axes.unify(a, b)
    from_left = op.keyword("left", True)
    flow.axes.keep_whole("a triangular solve", *left[-2:], right[-2 if from_left else -1])
    flow.set(op.outputs[0], list(right))
