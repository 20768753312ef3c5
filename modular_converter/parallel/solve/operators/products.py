"""Axis rules of operators that compute: products, norms, reductions, look-ups, positions and all pointwise operators."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import Seq, size
from modular_converter.parallel.solve.flow import Flow, Lookup, argument, integer_argument, integer_arguments, ref
from modular_converter.parallel.solve.operators.traits import (
    MOVE,
    NO_GRADIENT,
    PART,
    Linear,
    OperatorTable,
    Traits,
    all_whole,
    opaque,
)
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
    reason = "a convolution over positions"
    flow.axes.keep_whole(reason, *dims[2:], *kernel[2:])
    first, second = (1, 0) if op.args[6] else (0, 1)
    spatial = [flow.kept_whole(length, reason) for length in flow.shape(out)[2:]]
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


@TABLE.operator("_softmax _log_softmax _safe_softmax")
def softmax(flow: Flow, op: Op) -> None:
    dims = flow.of(ref(op.args[0]))
    if dims:
        flow.axes.keep_whole("a softmax over it", dims[integer_argument(op.args[1])])
    flow.set(op.outputs[0], list(dims))


@TABLE.operator("native_layer_norm")
def layer_norm(flow: Flow, op: Op) -> None:
    """The normalised last dimensions stay whole, with weight and bias."""
    dims = flow.of(ref(op.args[0]))
    count = len(integer_arguments(op.args[1]))
    flow.axes.keep_whole("a norm over its full width", *dims[-count:])
    for arg in op.args[2:]:
        if isinstance(arg, Ref):
            for left, right in zip(flow.of(arg.id), dims[-count:]):
                flow.axes.unify(left, right)
    flow.set(op.outputs[0], list(dims))
    for out in op.outputs[1:]:
        flow.set(out, [*dims[:-count], *[()] * count])


@TABLE.operator("native_group_norm native_batch_norm _native_batch_norm_legit_no_training")
def channel_norm(flow: Flow, op: Op) -> None:
    """Group and batch norms: channels and positions stay whole."""
    dims = flow.of(ref(op.args[0]))
    in_training = op.name == "native_batch_norm" and op.args[5]
    reason = "a norm over groups of channels" if op.name == "native_group_norm" else "a norm over channels"
    flow.axes.keep_whole(reason, *(dims if in_training else dims[1:]))
    for number in op.inputs()[1:]:
        flow.axes.keep_whole(reason, *flow.of(number))
    flow.set(op.outputs[0], list(dims))
    for out in op.outputs[1:]:
        flow.fresh(out, "statistics of a norm")
        if op.name == "native_group_norm":
            flow.dims[out][0] = dims[0]


@TABLE.operator("_scaled_dot_product_flash_attention_for_cpu")
def attention(flow: Flow, op: Op) -> None:
    """Fused attention ``[b, h, s, e]``: heads are independent, widths and positions are not; query heads may be grouped."""
    q, k, v = (flow.of(ref(arg)) for arg in op.args[:3])
    flow.axes.unify(q[0], k[0])
    flow.axes.unify(k[0], v[0])
    flow.axes.unify(k[1], v[1])
    heads, groups = size(q[1]), size(k[1])
    flow.axes.unify(q[1], k[1] if heads == groups else k[1] + flow.axes.leaf(heads // groups))
    flow.axes.unify(q[3], k[3])
    flow.axes.unify(k[2], v[2])
    for seq, reason in ((q[3], "the scores sum over it"), (k[2], "a softmax over it"), (q[2], "positions")):
        flow.axes.keep_whole(reason, seq)
    out = op.outputs[0]
    dims = [q[0], q[1], q[2], v[3]]
    flow.set(out, dims)
    for number in op.outputs[1:]:
        flow.set(number, dims[:3])
    for number in op.inputs()[3:]:
        flow.align(flow.of(number), (q[0], q[1], q[2], k[2]))


# Operators whose arguments have an order before the dimension.
_ORDERED = ("norm", "linalg_vector_norm")
_REDUCTIONS = "amax amin any all prod logsumexp var std max min median norm linalg_vector_norm count_nonzero"


@TABLE.operator("sum mean", Traits(linear=Linear.FIRST))
@TABLE.operator("argmax argmin", NO_GRADIENT)
@TABLE.operator(_REDUCTIONS)
def reduce(flow: Flow, op: Op) -> None:
    """Sums, means, maxima: the reduced dimensions stay whole, the others pass."""
    dims = flow.of(ref(op.args[0]))
    given = argument(op, 2 if op.name in _ORDERED else 1, "dim")
    chosen = [at % max(len(dims), 1) for at in integer_arguments(given)] or list(range(len(dims)))
    reason = (
        "a norm or mean over it" if op.name in ("mean", "linalg_vector_norm", "var", "std") else f"{op.name} over it"
    )
    for at in chosen:
        if at < len(dims):
            flow.axes.keep_whole(reason, dims[at])
    for out in op.outputs:
        keep = len(flow.shape(out)) == len(dims)
        flow.set(out, [() if i in chosen else seq for i, seq in enumerate(dims) if keep or i not in chosen])


@TABLE.operator("cumsum cumprod sort topk kthvalue logcumsumexp cummax")
def scan(flow: Flow, op: Op) -> None:
    """``cumsum``, ``sort``, ``topk``: one dimension stays whole, the others pass; ``kthvalue`` keeps one entry of it."""
    source = ref(op.args[0])
    dims = list(flow.of(source))
    position = {"topk": 2, "kthvalue": 2}.get(op.name, 1)
    at = integer_argument(argument(op, position, "dim", -1), -1) % len(dims) if dims else 0
    if dims:
        flow.axes.keep_whole(f"{op.name} over it", dims[at])
    for out in op.outputs:
        new = list(dims)
        if len(flow.shape(out)) < len(dims):
            del new[at]
        elif dims and flow.shape(out)[at] != flow.shape(source)[at]:
            new[at] = flow.kept_whole(flow.shape(out)[at], f"{op.name} over it")
        flow.set(out, new)


@TABLE.operator("_local_scalar_dense nonzero histc bincount equal")
def read(flow: Flow, op: Op) -> None:
    """The program reads the values, so all ranks must have all values."""
    all_whole(flow, op, "a value read by the program")


@TABLE.operator("mul", Traits(linear=Linear.EACH))
@TABLE.operator("where", Traits(linear=Linear.BRANCHES))
@TABLE.operator("masked_fill", Traits(moves=True, linear=Linear.FIRST, added=2))
@TABLE.operator("div", Traits(linear=Linear.NUMERATOR))
@TABLE.operator("add sub", Traits(linear=Linear.TOGETHER, added=1))
@TABLE.operator("neg", Traits(linear=Linear.FIRST))
@TABLE.operator("eq ne lt gt le ge sign floor ceil round bernoulli", NO_GRADIENT)
@TABLE.operator("floor_divide remainder fmod complex polar")
def pointwise(flow: Flow, op: Op) -> None:
    """The axes of all operands, broadcast."""
    out = op.outputs[0]
    flow.set(out, flow.broadcast(op.inputs(), len(flow.shape(out))))


@TABLE.operator("index", PART)
def index(flow: Flow, op: Op) -> None:
    """``x[i, :, j]`` with index tensors: indexed dimensions are looked up, and the dimensions of the indices replace them."""
    source, out = ref(op.args[0]), op.outputs[0]
    dims = flow.of(source)
    given = op.args[1] if isinstance(op.args[1], tuple) else ()
    places = [i for i, item in enumerate(given) if isinstance(item, Ref)]
    numbers = tuple(item.id for item in given if isinstance(item, Ref))
    if any(len(flow.shape(n)) and flow.shape(out) == () for n in numbers) or not places:
        return all_whole(flow, op, "an index by a mask")
    for i in places:
        flow.lookups.append(Lookup(dims[i], flow.index, source, numbers))
    picked = flow.broadcast(numbers, max(len(flow.shape(n)) for n in numbers))
    adjacent = places == list(range(places[0], places[-1] + 1))
    at = places[0] if adjacent else 0
    rest = [seq for i, seq in enumerate(dims) if i not in places]
    new = rest[:at] + picked + rest[at:]
    if len(new) != len(flow.shape(out)) or any(size(seq) != length for seq, length in zip(new, flow.shape(out))):
        return all_whole(flow, op, "an index by a mask")
    flow.set(out, new)


@TABLE.operator("embedding")
@TABLE.operator("index_select", PART, "index_select")
def select_rows(flow: Flow, op: Op) -> None:
    """``weight[ids]``, or entries along one dimension; a single entry keeps its dimension, with a length of 1."""
    is_table = op.name == "embedding"
    source, ids = ref(op.args[0]), ref(op.args[1 if is_table else 2])
    dims = list(flow.of(source))
    at = 0 if is_table else integer_argument(op.args[1]) % len(dims)
    flow.lookups.append(Lookup(dims[at], flow.index, source, (ids,)))
    dims[at : at + 1] = flow.of(ids) or ([] if is_table else [()])
    flow.set(op.outputs[0], dims)


@TABLE.operator("gather", MOVE)
def gather(flow: Flow, op: Op) -> None:
    source, ids = ref(op.args[0]), ref(op.args[2])
    at = integer_argument(op.args[1])
    dims, picked = flow.of(source), flow.of(ids)
    flow.axes.keep_whole("a gather over it", dims[at % len(dims)])
    for i, (left, right) in enumerate(zip(dims, picked)):
        if i != at % len(dims):
            _agree_or_whole(flow, left, right)
    flow.set(op.outputs[0], list(picked))


@TABLE.operator("index_add scatter_add index_put index_copy", Traits(linear=Linear.ENDS))
@TABLE.operator("scatter scatter_reduce")
def scatter(flow: Flow, op: Op) -> None:
    """``scatter``, ``index_add``, ``index_put``: indexed dimensions stay whole; others are unified if lengths agree."""
    dims = flow.of(ref(op.args[0]))
    at = integer_argument(op.args[1]) % max(len(dims), 1) if isinstance(op.args[1], int) else 0
    simple = op.name.startswith(("scatter", "index_add", "index_copy"))
    for i, seq in enumerate(dims):
        if i == at or not simple:
            flow.axes.keep_whole("a scatter over it", seq)
    for number in op.inputs()[1:]:
        other = flow.of(number)
        same_rank = len(other) == len(dims) and simple
        for i, seq in enumerate(other):
            if same_rank and i != at:
                _agree_or_whole(flow, dims[i], seq)
            else:
                flow.axes.keep_whole("a scatter over it", seq)
    flow.set(op.outputs[0], list(dims))


def _agree_or_whole(flow: Flow, left: Seq, right: Seq) -> None:
    if size(left) == size(right):
        flow.axes.unify(left, right)
    else:
        flow.axes.keep_whole("an index over part of it", left, right)


_POOLING = (
    "avg_pool2d max_pool2d_with_indices adaptive_max_pool2d _adaptive_avg_pool2d upsample_bilinear2d"
    " upsample_nearest2d upsample_bicubic2d upsample_nearest1d _upsample_bilinear2d_aa"
)


@TABLE.operator(_POOLING)
def spatial(flow: Flow, op: Op) -> None:
    """Pooling and resizing: batch and channels pass, positions stay whole."""
    dims = flow.of(ref(op.args[0]))
    kept, reason = 1 if "1d" in op.name else 2, "pooling or resizing"
    flow.axes.keep_whole(reason, *dims[-kept:])
    for out in op.outputs:
        flow.set(out, [*dims[:-kept], *(flow.kept_whole(length, reason) for length in flow.shape(out)[-kept:])])


@TABLE.operator("im2col")
def im2col(flow: Flow, op: Op) -> None:
    """``unfold``: channels become channels times the window, positions become windows."""
    dims, out = list(flow.of(ref(op.args[0]))), op.outputs[0]
    channels = dims[-3]
    reason = "windows over positions"
    flow.axes.keep_whole(reason, *dims[-2:])
    window = flow.kept_whole(flow.shape(out)[-2] // max(size(channels), 1), reason)
    flow.set(out, [*dims[:-3], channels + window, flow.kept_whole(flow.shape(out)[-1], reason)])


@TABLE.operator("triu tril")
def triangle(flow: Flow, op: Op) -> None:
    dims = flow.of(ref(op.args[0]))
    flow.axes.keep_whole("a triangle mask", *dims[-2:])
    flow.set(op.outputs[0], list(dims))
