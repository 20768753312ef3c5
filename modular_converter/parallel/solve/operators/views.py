"""Axis rules of operators that move entries (reshapes, permutations, broadcasts, cuts), and of those that make tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modular_converter.parallel.solve.axes import Seq, size
from modular_converter.parallel.solve.flow import (
    Count,
    Flow,
    Stretch,
    argument,
    integer_argument,
    integer_arguments,
    only_integer,
    ref,
)
from modular_converter.parallel.solve.operators.traits import (
    MOVE,
    PART,
    SHAPE_ONLY,
    VIEW,
    Linear,
    OperatorTable,
    Traits,
    opaque,
)
from modular_converter.parallel.trace.graph import Op, Ref, Source


TABLE = OperatorTable()
# A concatenation of at most so many tensors is written in the code; the length of a longer list may be a setting.
_WRITTEN = 3


@TABLE.operator("clone _to_copy lift_fresh", PART, "clone contiguous to type type_as float half double bfloat16")
@TABLE.operator("alias", VIEW)
@TABLE.operator("detach", replace(VIEW, gradient=False))
@TABLE.operator("fill_")
@TABLE.operator("zero_", Traits(zeros=True))
def identity(flow: Flow, op: Op) -> None:
    """The axes of the first tensor."""
    flow.set(op.outputs[0], list(flow.of(ref(op.args[0]))))


@TABLE.operator("view _reshape_alias", VIEW, "view reshape flatten unflatten")
@TABLE.operator("_unsafe_view", PART)
def reshape(flow: Flow, op: Op) -> None:
    """Match input and output dimensions in groups that end where their running products are equal."""
    source, out = ref(op.args[0]), op.outputs[0]
    shape_in, shape_out = flow.shape(source), flow.shape(out)
    if 0 in shape_out:
        return flow.fresh(out, "an empty tensor")
    dims_in = flow.of(source)
    dims_out: list[Seq] = []
    for first, last, lengths in _groups(shape_in, shape_out):
        dims_out += _regrouped(flow, dims_in[first:last], lengths)
    flow.set(out, dims_out)
    given = flow.call_integers(op, "view", "reshape", "_unsafe_view")
    if given is not None and len(given) == len(dims_out):
        _require_free(flow, dims_out, given)
    given = flow.call_integers(op, "unflatten")
    if given:
        at = given[0].value % (len(dims_out) - len(given) + 2)
        _require_free(flow, dims_out[at : at + len(given) - 1], given[1:])


def _groups(shape_in: Sequence[int], shape_out: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """The smallest groups of dimensions with equal products: (first, end) of the input, lengths of the output."""
    found: list[tuple[int, int, list[int]]] = []
    first = last = 0
    lengths: list[int] = []
    have = want = 1
    for length in shape_out:
        if lengths and have == want and have > 1 and length > 1:
            found.append((first, last, lengths))
            first, lengths, have, want = last, [], 1, 1
        lengths.append(length)
        want *= length
        while have < want and last < len(shape_in):
            have *= shape_in[last]
            last += 1
    found.append((first, len(shape_in), lengths))
    return found


def _regrouped(flow: Flow, dims: Sequence[Seq], lengths: Sequence[int]) -> list[Seq]:
    """A group of dimensions under new lengths; all stay whole if the factors do not line up."""
    pool: Seq = tuple(atom for seq in dims for atom in seq)
    taken: list[Seq] = []
    for length in lengths:
        head, pool = flow.axes.take(pool, length)
        if head is None:
            break
        taken.append(head)
    if len(taken) == len(lengths) and not pool:  # a view as a narrower type leaves a rest
        return taken
    fresh = [flow.axes.leaf(length) for length in lengths]
    flow.axes.keep_whole("a view that mixes axes", *dims, *fresh)
    return fresh


def _require_free(flow: Flow, dims: Sequence[Seq], given: Sequence[Source]) -> None:
    for seq, source in zip(dims, given):
        flow.require(seq, source, "a size in a view")


@TABLE.operator("t transpose", VIEW, "t transpose swapaxes")
def transpose(flow: Flow, op: Op) -> None:
    dims = list(flow.of(ref(op.args[0])))
    if len(dims) > 1:
        first, second = (integer_argument(at) for at in op.args[1:3]) if len(op.args) > 1 else (0, 1)
        dims[first], dims[second] = dims[second], dims[first]
    flow.set(op.outputs[0], dims)


@TABLE.operator("permute", VIEW, "permute movedim")
def permute(flow: Flow, op: Op) -> None:
    dims = flow.of(ref(op.args[0]))
    flow.set(op.outputs[0], [dims[i] for i in integer_arguments(op.args[1])])


@TABLE.operator("unsqueeze", VIEW, "unsqueeze")
def unsqueeze(flow: Flow, op: Op) -> None:
    dims = list(flow.of(ref(op.args[0])))
    at = integer_argument(op.args[1])
    dims.insert(at if at >= 0 else at + len(dims) + 1, ())
    flow.set(op.outputs[0], dims)


@TABLE.operator("squeeze", VIEW, "squeeze")
def squeeze(flow: Flow, op: Op) -> None:
    source = ref(op.args[0])
    shape, dims = flow.shape(source), flow.of(source)
    chosen = [at % len(dims) for at in integer_arguments(op.args[1])] if len(op.args) > 1 else list(range(len(dims)))
    for i in chosen:
        if shape[i] > 1:
            flow.axes.keep_whole("a squeeze, which drops a share of one entry", dims[i])
    kept = [seq for i, seq in enumerate(dims) if not (i in chosen and shape[i] == 1)]
    flow.set(op.outputs[0], kept)


@TABLE.operator("expand", VIEW, "expand")
def expand(flow: Flow, op: Op) -> None:
    source, out = ref(op.args[0]), op.outputs[0]
    shape_out = flow.shape(out)
    dims_in = flow.of(source)
    missing = len(shape_out) - len(dims_in)
    given = flow.call_integers(op, "expand", "broadcast_to") or ()
    stated = given if len(given) == len(shape_out) else ()
    dims: list[Seq] = []
    for i, length in enumerate(shape_out):
        old = dims_in[i - missing] if i >= missing else ()
        fresh = not old and length > 1
        dims.append(_stretched(flow, op, length, stated[i : i + 1]) if fresh else old)
    flow.set(out, dims)
    _require_free(flow, dims, stated)


def _stretched(flow: Flow, op: Op, length: int, stated: Sequence[Source]) -> Seq:
    """An expanded axis: the axis of the tensor whose length the call reads, or a new axis."""
    if stated and stated[0].kind == "shape" and stated[0].value == length:
        return flow.of(stated[0].tensor)[stated[0].dim]
    fresh = flow.axes.leaf(length)
    _require_count(flow, op, fresh, length)
    return fresh


def _require_count(flow: Flow, op: Op, seq: Seq, count: int) -> None:
    """Require the number of copies, found among the integers of a call."""
    given = flow.call_integers(op, "repeat_interleave", "tile")
    if given is not None:
        flow.require(seq, only_integer(given, count) or Source("const", count), "a repeat count")


@TABLE.operator("repeat", MOVE)
def repeat(flow: Flow, op: Op) -> None:
    source, out = ref(op.args[0]), op.outputs[0]
    times = integer_arguments(op.args[1])
    dims_in = flow.of(source)
    missing = len(times) - len(dims_in)
    dims = []
    for i, count in enumerate(times):
        old = dims_in[i - missing] if i >= missing else ()
        outer = flow.axes.leaf(count)
        _require_count(flow, op, outer, count)
        dims.append(outer + old)
    flow.set(out, dims)
    given = flow.call_integers(op, "repeat")
    if given is not None and len(given) == len(times):
        for seq, source_of_size, count in zip(dims, given, times):
            if count > 1:
                flow.require(flow.axes.take(seq, count)[0] or (), source_of_size, "a repeat count")


@TABLE.operator("cat", Traits(moves=True, linear=Linear.TOGETHER))
def cat(flow: Flow, op: Op) -> None:
    sources = [n for n in op.inputs() if flow.shape(n) != (0,)]
    out = op.outputs[0]
    rank = len(flow.shape(out))
    at = integer_argument(argument(op, 1, "dim", 0)) % rank
    dims = list(flow.of(sources[0]))
    for number in sources[1:]:
        for i in range(rank):
            if i != at:
                flow.axes.unify(dims[i], flow.of(number)[i])
    parts = [flow.of(number)[at] for number in sources if flow.shape(number)[at]]
    dims[at] = flow.axes.concatenate(parts) if parts else ()
    if len(parts) <= _WRITTEN:
        flow.counts.append(Count(dims[at], Source("const", len(parts))))
    flow.set(out, dims)


@TABLE.operator("stack", Traits(moves=True, linear=Linear.TOGETHER))
def stack(flow: Flow, op: Op) -> None:
    sources = op.inputs()
    dims = list(flow.of(sources[0]))
    for number in sources[1:]:
        for left, right in zip(dims, flow.of(number)):
            flow.axes.unify(left, right)
    at = integer_argument(argument(op, 1, "dim", 0)) % (len(dims) + 1)
    dims.insert(at, flow.kept_whole(len(sources), "a stack"))
    flow.set(op.outputs[0], dims)


@TABLE.operator("flip roll", MOVE)
def flip_or_roll(flow: Flow, op: Op) -> None:
    """The given dimensions stay whole, or all if none is given: their entries change places."""
    dims = flow.of(ref(op.args[0]))
    for at in integer_arguments(argument(op, 2 if op.name == "roll" else 1, "dims")) or range(len(dims)):
        flow.axes.keep_whole(f"a {op.name}", dims[at])
    flow.set(op.outputs[0], list(dims))


@TABLE.operator("constant_pad_nd", replace(MOVE, added=2))
def pad(flow: Flow, op: Op) -> None:
    source, out = ref(op.args[0]), op.outputs[0]
    dims = list(flow.of(source))
    for i, (old, new) in enumerate(zip(flow.shape(source), flow.shape(out))):
        amounts = integer_arguments(op.args[1])
        back = 2 * (len(dims) - 1 - i)
        if old != new or any(amounts[back : back + 2]):
            flow.axes.keep_whole("padding", dims[i])
            dims[i] = flow.kept_whole(new, "padding")
    flow.set(out, dims)


@TABLE.operator("copy", Traits(moves=True, linear=Linear.TOGETHER))
def copy_into(flow: Flow, op: Op) -> None:
    """``copy_``: the axes of source and target are unified, aligned from the right."""
    if isinstance(op.args[1], Ref):
        flow.align(flow.of(ref(op.args[0])), flow.of(op.args[1].id))


@TABLE.operator("view_as_complex view_as_real", Traits(view=True))
def complex_pairs(flow: Flow, op: Op) -> None:
    """``view_as_complex`` drops a last dimension of two, ``view_as_real`` adds one."""
    dims = list(flow.of(ref(op.args[0])))
    reason = "the parts of complex numbers"
    if op.name == "view_as_complex":
        flow.axes.keep_whole(reason, dims.pop())
    else:
        dims.append(flow.kept_whole(2, reason))
    flow.set(op.outputs[0], dims)


TABLE.operator("as_strided unfold", Traits(view=True))(opaque)


@TABLE.operator("slice", VIEW, "__getitem__ narrow")
def slice_(flow: Flow, op: Op) -> None:
    """``x[start:stop:step]`` along one dimension."""
    source, out = ref(op.args[0]), op.outputs[0]
    dims = list(flow.of(source))
    at = integer_argument(argument(op, 1, "dim", 0)) % max(len(dims), 1)
    length = flow.shape(source)[at]
    start = min(integer_argument(argument(op, 2, "start"), 0), length)
    start = max(start + length, 0) if start < 0 else start
    step = integer_argument(argument(op, 4, "step", 1), 1)
    from_end = integer_argument(argument(op, 2, "start"), 0) < 0
    new = flow.shape(out)[at]
    if step == 1:
        stop = start + new
        if (start, stop) != (0, length):
            _require_cut(flow, op, dims[at], start, stop)
        dims[at] = flow.axes.cut(dims[at], start, stop) if new else ()
    elif length == new * step and not from_end:
        outer, inner = flow.axes.take(dims[at], new)
        flow.axes.keep_whole("a slice with a step", inner)
        dims[at] = outer or _give_up(flow, dims[at], new)
    else:
        dims[at] = _give_up(flow, dims[at], new)
    flow.set(out, dims)


def _require_cut(flow: Flow, op: Op, seq: Seq, start: int, stop: int) -> None:
    narrowed = flow.call_integers(op, "narrow")
    if narrowed is not None:
        flow.require(flow.axes.cut(seq, start, stop), narrowed[1], "a slice length")
        return _require_border(flow, seq, start, narrowed[:1])
    given = flow.call_integers(op, "__getitem__", "__setitem__")
    if given is None:
        return flow.axes.keep_whole("a slice that torch works out", seq)
    for point in (start, stop):
        _require_border(flow, seq, point, given)


def _require_border(flow: Flow, seq: Seq, point: int, given: tuple[Source, ...]) -> None:
    """Find a border of a slice among integers of the code, counted from the start or from the end."""
    if not 0 < point < size(seq):
        return
    found = only_integer(given, point) or Source("const", point)
    flow.stretches.append(Stretch(seq, 0, point, found))
    behind = only_integer(given, point - size(seq))
    if found.kind == "const" and behind is not None:
        tail = flow.axes.cut(seq, point, size(seq))
        negated = Source("sub", -behind.value, args=(Source("const", 0), behind))
        flow.require(tail, negated, "a slice from the end")
    else:
        flow.require(flow.axes.cut(seq, 0, point), found, "a slice border")


def _give_up(flow: Flow, seq: Seq, length: int) -> Seq:
    reason = "a slice with a step"
    flow.axes.keep_whole(reason, seq)
    return flow.kept_whole(length, reason)


@TABLE.operator("select", VIEW, "select")
def select(flow: Flow, op: Op) -> None:
    source = ref(op.args[0])
    dims = list(flow.of(source))
    at = integer_argument(op.args[1]) % len(dims)
    length = flow.shape(source)[at]
    index = integer_argument(op.args[2]) % max(length, 1)
    flow.axes.keep_whole("an index", flow.axes.cut(dims[at], index, index + 1))
    if length > 1:
        flow.axes.keep_whole("an index", dims[at])
    del dims[at]
    flow.set(op.outputs[0], dims)


@TABLE.operator("split split_with_sizes", VIEW, "split chunk")
def split(flow: Flow, op: Op) -> None:
    """``split``, ``split_with_sizes``, ``chunk``, ``unbind``: a cut at each border."""
    source = ref(op.args[0])
    dims = flow.of(source)
    at = integer_argument(argument(op, 2, "dim", 0)) % len(dims)
    start = 0
    pieces = []
    for out in op.outputs:
        stop = start + flow.shape(out)[at]
        piece = flow.axes.cut(dims[at], start, stop)
        pieces.append(piece)
        flow.set(out, [*dims[:at], piece, *dims[at + 1 :]])
        start = stop
    chunks = flow.call_integers(op, "chunk")
    if chunks and chunks[0].value == len(pieces):
        flow.counts.append(Count(dims[at], chunks[0]))
    given = flow.call_integers(op, "split", "split_with_sizes")
    if given is None:
        _require_equal(flow, source, at, pieces)
    else:
        sizes = given[: len(pieces)] if op.name == "split_with_sizes" else given[:1] * len(pieces)
        start = 0
        for piece, source_of_size in zip(pieces, sizes):
            stop = start + size(piece)
            if source_of_size.value == size(piece):
                flow.require(piece, source_of_size, "a split size")
                flow.stretches.append(Stretch(dims[at], start, stop, source_of_size))
            start = stop


def _require_equal(flow: Flow, source: int, at: int, pieces: list[Seq]) -> None:
    """Require equal shares of pieces whose lengths torch computes from their number."""
    length = Source("shape", flow.shape(source)[at], tensor=source, dim=at)
    each = Source("floordiv", size(pieces[0]), args=(length, Source("const", len(pieces))))
    for piece in pieces:
        if size(piece) * len(pieces) == length.value:
            flow.require(piece, each, "a chunk")
        else:
            flow.axes.keep_whole("chunks of different lengths", piece)


@TABLE.operator("unbind", VIEW, "unbind")
def unbind(flow: Flow, op: Op) -> None:
    dims = list(flow.of(ref(op.args[0])))
    at = integer_argument(argument(op, 1, "dim", 0)) % len(dims)
    flow.axes.keep_whole("an index", dims[at])
    rest = dims[:at] + dims[at + 1 :]
    for out in op.outputs:
        flow.set(out, list(rest))


@TABLE.operator("glu")
def glu(flow: Flow, op: Op) -> None:
    source, out = ref(op.args[0]), op.outputs[0]
    dims = list(flow.of(source))
    at = integer_argument(argument(op, 1, "dim", -1), -1)
    half = flow.shape(source)[at] // 2
    first, second = flow.axes.cut(dims[at], 0, half), flow.axes.cut(dims[at], half, 2 * half)
    flow.axes.unify(first, second)
    flow.counts.append(Count(dims[at], Source("const", 2)))
    dims[at] = first
    flow.set(out, dims)


@TABLE.operator("zeros", Traits(zeros=True))
@TABLE.operator("new_zeros", replace(SHAPE_ONLY, zeros=True))
@TABLE.operator("new_ones new_full new_empty", SHAPE_ONLY)
@TABLE.operator("ones full empty")
def uniform(flow: Flow, op: Op) -> None:
    """``zeros``, ``ones``, ``full``: any shard is right, if the sizes in the code shrink."""
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


@TABLE.operator("arange randn rand randint eye linspace scalar_tensor randperm")
def created(flow: Flow, op: Op) -> None:
    """``arange``, random numbers, ``eye``: made whole."""
    for out in op.outputs:
        flow.fresh(out, f"{op.name} makes it whole")


TABLE.operator("zeros_like", replace(SHAPE_ONLY, zeros=True))(identity)
TABLE.operator("ones_like full_like empty_like rand_like", SHAPE_ONLY)(identity)
TABLE.operator("randn_like", SHAPE_ONLY)(opaque)
