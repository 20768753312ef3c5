"""Axis rules of operations that compute: element-wise, products, reductions, norms, attention, look-ups, factories."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import Seq, size
from modular_converter.parallel.solve.flow import Count, Flow, Lookup, Rule, argument, integer, integers, ref
from modular_converter.parallel.solve.rules_lookup import embedding, gather, index, index_select, scatter
from modular_converter.parallel.solve.rules_norm import attention, channel_norm, layer_norm, softmax
from modular_converter.parallel.trace.graph import Op, Ref, Source


def pointwise(flow: Flow, op: Op) -> None:
    """Operands are aligned from the right; axes of length 1 stretch, all others become one."""
    out = op.outputs[0]
    rank = len(flow.shape(out))
    dims: list[Seq] = [()] * rank
    for number in op.inputs():
        for back, seq in enumerate(reversed(flow.of(number)), start=1):
            if not seq or back > rank:
                continue
            if dims[-back]:
                flow.axes.unify(dims[-back], seq)
            else:
                dims[-back] = seq
    flow.set(out, dims)
    if op.name in ("clone", "_to_copy"):
        flow.carry(op, op.inputs()[0])


def mm(flow: Flow, op: Op) -> None:
    """``[m, k] @ [k, n]``; ``addmm`` adds a first operand that is aligned from the right."""
    shift = 1 if op.name in ("addmm", "baddbmm", "addmv", "addbmm") else 0
    a, b = ref(op.args[shift]), ref(op.args[shift + 1])
    left, right = flow.of(a), flow.of(b)
    flow.contract(left[-1], right[-2 if len(right) > 1 else 0], a, b)
    if len(left) == 3:
        flow.axes.unify(left[0], right[0])
    dims = left[:-1] + right[-1:] if len(right) > 1 else left[:-1]
    flow.set(op.outputs[0], list(dims))
    if shift:
        for back, seq in enumerate(reversed(flow.of(ref(op.args[0]))), start=1):
            if seq and back <= len(dims):
                flow.axes.unify(seq, dims[-back])


def grouped_mm(flow: Flow, op: Op) -> None:
    """Rows sorted by expert times one matrix an expert: ``[s, k] x [e, k, n]``; the expert axis is looked up."""
    a, b = ref(op.args[0]), ref(op.args[1])
    left, right = flow.of(a), flow.of(b)
    flow.contract(left[-1], right[-2], a, b)
    offsets = argument(op, 2, "offs")
    indices = (offsets.id,) if isinstance(offsets, Ref) else ()
    flow.lookups.append(Lookup(right[0], flow.index, b, indices))
    flow.set(op.outputs[0], [left[0], right[-1]])


def convolution(flow: Flow, op: Op) -> None:
    """Channels contract or pass in groups; positions stay whole."""
    source, weight = ref(op.args[0]), ref(op.args[1])
    groups = integer(op.args[8], 1)
    dims, kernel, out = flow.of(source), flow.of(weight), op.outputs[0]
    for seq in [*dims[2:], *kernel[2:]]:
        flow.whole(seq, "a convolution over positions")
    first, second = (1, 0) if op.args[6] else (0, 1)
    spatial = [flow.axes.leaf(length) for length in flow.shape(out)[2:]]
    for seq in spatial:
        flow.whole(seq, "a convolution over positions")
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
        return group + kernel[1]
    flow.contract(inner, kernel[1], ref(op.args[0]), ref(op.args[1]))
    outer = flow.axes.leaf(size(kernel[0]) // groups)
    flow.axes.unify(kernel[0], group + outer)
    given = flow.call_integers(op, "conv1d", "conv2d", "conv3d") or ()
    found = next((s for s in reversed(given) if s.value == groups), Source("const", groups))
    flow.require(group, found, "the groups of a convolution")
    return group + outer


def reduce(flow: Flow, op: Op) -> None:
    """Sums, means, maxima: the reduced dimensions stay whole, the others pass."""
    source = ref(op.args[0])
    dims = flow.of(source)
    given = argument(op, 1, "dim")
    chosen = [at % max(len(dims), 1) for at in integers(given)] or list(range(len(dims)))
    reason = (
        "a norm or mean over it" if op.name in ("mean", "linalg_vector_norm", "var", "std") else f"{op.name} over it"
    )
    for at in chosen:
        if at < len(dims):
            flow.whole(dims[at], reason)
    for out in op.outputs:
        keep = len(flow.shape(out)) == len(dims)
        flow.set(out, [() if i in chosen else seq for i, seq in enumerate(dims) if keep or i not in chosen])


def scan(flow: Flow, op: Op) -> None:
    """``cumsum``, ``sort``, ``topk``: one dimension is ordered, the others pass."""
    source = ref(op.args[0])
    dims = list(flow.of(source))
    position = {"topk": 2, "kthvalue": 2}.get(op.name, 1)
    at = integer(argument(op, position, "dim", -1), -1) if dims else 0
    if dims:
        flow.whole(dims[at], f"{op.name} over it")
    for out in op.outputs:
        new = list(dims)
        if dims and flow.shape(out)[at] != flow.shape(source)[at]:
            new[at] = flow.axes.leaf(flow.shape(out)[at])
            flow.whole(new[at], f"{op.name} over it")
        flow.set(out, new)


def uniform(flow: Flow, op: Op) -> None:
    """``zeros``, ``ones``, ``full``: any shard of it is right, if the sizes in the code shrink."""
    out = op.outputs[0]
    dims = [flow.axes.leaf(length) for length in flow.shape(out)]
    flow.set(out, dims)
    given = (
        flow.call_integers(op, op.name, "zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "empty") or ()
    )
    for at, (seq, length) in enumerate(zip(dims, flow.shape(out))):
        if not seq:
            continue
        aligned = given[at] if at < len(given) and given[at].value == length else None
        flow.require(seq, aligned or Source("const", length), f"a size of {op.name}")


def created(flow: Flow, op: Op) -> None:
    """``arange``, random numbers, ``eye``: made whole."""
    for out in op.outputs:
        flow.fresh(out, f"{op.name} makes it whole")


def spatial(flow: Flow, op: Op) -> None:
    """Pooling and resizing: batch and channels pass, positions stay whole."""
    source = ref(op.args[0])
    dims = flow.of(source)
    kept = 1 if "1d" in op.name or "linear1d" in op.name else 2
    for seq in dims[-kept:]:
        flow.whole(seq, "pooling or resizing")
    for out in op.outputs:
        new = list(dims[:-kept])
        for length in flow.shape(out)[-kept:]:
            new.append(flow.axes.leaf(length))
            flow.whole(new[-1], "pooling or resizing")
        flow.set(out, new)


def complex_pairs(flow: Flow, op: Op) -> None:
    """``view_as_complex`` drops a last dimension of two, ``view_as_real`` adds one."""
    dims = list(flow.of(ref(op.args[0])))
    if op.name == "view_as_complex":
        flow.whole(dims.pop(), "the parts of complex numbers")
    else:
        pair = flow.axes.leaf(2)
        flow.whole(pair, "the parts of complex numbers")
        dims.append(pair)
    flow.set(op.outputs[0], dims)


def solve_triangular(flow: Flow, op: Op) -> None:
    """``A X = B`` over batches: ``A``'s own dimensions stay whole, the columns of ``B`` (rows from the right) pass."""
    left, right = flow.of(ref(op.args[0])), flow.of(ref(op.args[1]))
    for a, b in zip(left[:-2], right[:-2]):
        flow.axes.unify(a, b)
    from_left = op.keyword("left", True)
    for seq in [*left[-2:], right[-2 if from_left else -1]]:
        flow.whole(seq, "a triangular solve")
    flow.set(op.outputs[0], list(right))


def im2col(flow: Flow, op: Op) -> None:
    """``unfold``: channels become channels times the window, positions become windows."""
    dims, out = list(flow.of(ref(op.args[0]))), op.outputs[0]
    channels = dims[-3]
    for seq in dims[-2:]:
        flow.whole(seq, "windows over positions")
    window = flow.axes.leaf(flow.shape(out)[-2] // max(size(channels), 1))
    places = flow.axes.leaf(flow.shape(out)[-1])
    for seq in (window, places):
        flow.whole(seq, "windows over positions")
    flow.set(out, [*dims[:-3], channels + window, places])


def triangle(flow: Flow, op: Op) -> None:
    dims = flow.of(ref(op.args[0]))
    for seq in dims[-2:]:
        flow.whole(seq, "a triangle mask")
    flow.set(op.outputs[0], list(dims))


def glu(flow: Flow, op: Op) -> None:
    source, out = ref(op.args[0]), op.outputs[0]
    dims = list(flow.of(source))
    at = integer(argument(op, 1, "dim", -1), -1)
    half = flow.shape(source)[at] // 2
    first, second = flow.axes.cut(dims[at], 0, half), flow.axes.cut(dims[at], half, 2 * half)
    flow.axes.unify(first, second)
    flow.counts.append(Count(dims[at], Source("const", 2)))
    dims[at] = first
    flow.set(out, dims)


def scalar(flow: Flow, op: Op) -> None:
    """A tensor read by the program: whole."""
    for number in op.inputs():
        for seq in flow.of(number):
            flow.whole(seq, "a value read by the program")
    for out in op.outputs:
        flow.fresh(out, "a value read by the program")


_REDUCTIONS = (
    "sum mean amax amin any all argmax argmin prod logsumexp var std max min median norm linalg_vector_norm"
    " count_nonzero"
)
COMPUTE_RULES: dict[str, Rule] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"), mm),
    **dict.fromkeys(_REDUCTIONS.split(), reduce),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), softmax),
    **dict.fromkeys(("cumsum", "cumprod", "sort", "topk", "kthvalue", "logcumsumexp", "cummax"), scan),
    **dict.fromkeys(("native_group_norm", "native_batch_norm", "_native_batch_norm_legit_no_training"), channel_norm),
    **dict.fromkeys(("zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "empty", "new_empty"), uniform),
    **dict.fromkeys(("arange", "randn", "rand", "randint", "eye", "linspace", "scalar_tensor", "randperm"), created),
    **dict.fromkeys(("triu", "tril"), triangle),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce", "index_add", "index_put", "index_copy"), scatter),
    **dict.fromkeys(
        [
            "avg_pool1d",
            "avg_pool2d",
            "max_pool2d_with_indices",
            "_adaptive_avg_pool2d",
            "upsample_bilinear2d",
            "upsample_nearest2d",
            "upsample_bicubic2d",
            "adaptive_max_pool2d",
            "upsample_nearest1d",
            "_upsample_bilinear2d_aa",
        ],
        spatial,
    ),
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_attention_math",
            "_scaled_dot_product_efficient_attention",
        ),
        attention,
    ),
    **dict.fromkeys(("_local_scalar_dense", "nonzero", "histc", "bincount", "equal", "unique"), scalar),
    # element by element, though torch's tag does not say so for them
    **dict.fromkeys(
        ("masked_fill", "floor_divide", "remainder", "fmod", "dropout", "bernoulli", "complex"), pointwise
    ),
    "_grouped_mm": grouped_mm,
    "convolution": convolution,
    "native_layer_norm": layer_norm,
    "_fused_rms_norm": layer_norm,
    "embedding": embedding,
    "index": index,
    "index_select": index_select,
    "gather": gather,
    "glu": glu,
    "view_as_complex": complex_pairs,
    "view_as_real": complex_pairs,
    "polar": pointwise,
    "linalg_solve_triangular": solve_triangular,
    "im2col": im2col,
}
