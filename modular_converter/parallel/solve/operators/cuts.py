"""Axis rules of operators that cut: slices, selections, splits. They note the integers of the code that say where."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import Seq, size
from modular_converter.parallel.solve.flow import Count, Flow, Stretch, argument, integer_argument, only_integer, ref
from modular_converter.parallel.solve.operators.traits import VIEW, OperatorTable
from modular_converter.parallel.trace.graph import Op, Source


TABLE = OperatorTable()


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
    fresh = flow.axes.leaf(length)
    flow.axes.keep_whole("a slice with a step", seq, fresh)
    return fresh


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
