"""Axis rules of operators over positions: pooling, resizing, windows, triangle masks."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import size
from modular_converter.parallel.solve.flow import Flow, ref
from modular_converter.parallel.solve.operators.traits import OperatorTable
from modular_converter.parallel.trace.graph import Op


TABLE = OperatorTable()
_POOLING = (
    "avg_pool2d max_pool2d_with_indices adaptive_max_pool2d _adaptive_avg_pool2d upsample_bilinear2d"
    " upsample_nearest2d upsample_bicubic2d upsample_nearest1d _upsample_bilinear2d_aa"
)


@TABLE.operator(_POOLING)
def spatial(flow: Flow, op: Op) -> None:
    """Pooling and resizing: batch and channels pass, positions stay whole."""
    source = ref(op.args[0])
    dims = flow.of(source)
    kept = 1 if "1d" in op.name else 2
    for seq in dims[-kept:]:
        flow.whole(seq, "pooling or resizing")
    for out in op.outputs:
        new = list(dims[:-kept])
        for length in flow.shape(out)[-kept:]:
            new.append(flow.axes.leaf(length))
            flow.whole(new[-1], "pooling or resizing")
        flow.set(out, new)


@TABLE.operator("im2col")
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


@TABLE.operator("triu tril")
def triangle(flow: Flow, op: Op) -> None:
    dims = flow.of(ref(op.args[0]))
    for seq in dims[-2:]:
        flow.whole(seq, "a triangle mask")
    flow.set(op.outputs[0], list(dims))
