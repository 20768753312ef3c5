"""Axis rules of operators that select by index: embeddings, indexing, gathers and scatters."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import Seq, size
from modular_converter.parallel.solve.flow import Flow, Lookup, integer_argument, ref
from modular_converter.parallel.solve.operators.traits import MOVE, PART, Linear, OperatorTable, Traits
from modular_converter.parallel.trace.graph import Op, Ref


TABLE = OperatorTable()


@TABLE.operator("embedding")
def embedding(flow: Flow, op: Op) -> None:
    weight, ids = ref(op.args[0]), ref(op.args[1])
    rows, width = flow.of(weight)
    flow.lookups.append(Lookup(rows, flow.index, weight, (ids,)))
    flow.set(op.outputs[0], [*flow.of(ids), width])


@TABLE.operator("index", PART)
def index(flow: Flow, op: Op) -> None:
    """``x[i, :, j]`` with index tensors: indexed dimensions are looked up, and the dimensions of the indices replace them."""
    source, out = ref(op.args[0]), op.outputs[0]
    dims = flow.of(source)
    given = op.args[1] if isinstance(op.args[1], tuple) else ()
    places = [i for i, item in enumerate(given) if isinstance(item, Ref)]
    numbers = tuple(item.id for item in given if isinstance(item, Ref))
    if any(len(flow.shape(n)) and flow.shape(out) == () for n in numbers) or not places:
        return _index_opaque(flow, op)
    for i in places:
        flow.lookups.append(Lookup(dims[i], flow.index, source, numbers))
    picked = flow.broadcast(numbers, max(len(flow.shape(n)) for n in numbers))
    adjacent = places == list(range(places[0], places[-1] + 1))
    at = places[0] if adjacent else 0
    rest = [seq for i, seq in enumerate(dims) if i not in places]
    new = rest[:at] + picked + rest[at:]
    if len(new) != len(flow.shape(out)) or any(size(seq) != length for seq, length in zip(new, flow.shape(out))):
        return _index_opaque(flow, op)
    flow.set(out, new)


def _index_opaque(flow: Flow, op: Op) -> None:
    for number in op.inputs():
        flow.axes.keep_whole("an index by a mask", *flow.of(number))
    flow.fresh(op.outputs[0], "an index by a mask")


@TABLE.operator("index_select", PART, "index_select")
def index_select(flow: Flow, op: Op) -> None:
    source, ids = ref(op.args[0]), ref(op.args[2])
    dims = list(flow.of(source))
    at = integer_argument(op.args[1]) % len(dims)
    flow.lookups.append(Lookup(dims[at], flow.index, source, (ids,)))
    dims[at] = flow.of(ids)[0] if flow.of(ids) else ()
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
