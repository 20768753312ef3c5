"""Axis rules of operators that reduce, sort, or return a value to the program."""

from __future__ import annotations

from modular_converter.parallel.solve.flow import Flow, argument, integer_argument, integer_arguments, ref
from modular_converter.parallel.solve.operators.traits import NO_GRADIENT, Linear, OperatorTable, Traits
from modular_converter.parallel.trace.graph import Op


TABLE = OperatorTable()
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
            new[at] = flow.axes.leaf(flow.shape(out)[at])
            flow.axes.keep_whole(f"{op.name} over it", new[at])
        flow.set(out, new)


@TABLE.operator("_local_scalar_dense nonzero histc bincount equal")
def read(flow: Flow, op: Op) -> None:
    """The program reads the values, so all ranks must have all values."""
    for number in op.inputs():
        flow.axes.keep_whole("a value read by the program", *flow.of(number))
    for out in op.outputs:
        flow.fresh(out, "a value read by the program")
