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
    dims = flow.of(ref(op.args[0]))
    kept = 1 if "1d" in op.name else 2
    flow.axes.keep_whole("pooling or resizing", *dims[-kept:])
    for out in op.outputs:
        new = list(dims[:-kept])
        for length in flow.shape(out)[-kept:]:
            new.append(flow.axes.leaf(length))
            flow.axes.keep_whole("pooling or resizing", new[-1])
        flow.set(out, new)


@TABLE.operator("im2col")
def im2col(flow: Flow, op: Op) -> None:
    """``unfold``: channels become channels times the window, positions become windows."""
    dims, out = list(flow.of(ref(op.args[0]))), op.outputs[0]
    channels = dims[-3]
    flow.axes.keep_whole("windows over positions", *dims[-2:])
    window = flow.axes.leaf(flow.shape(out)[-2] // max(size(channels), 1))
    places = flow.axes.leaf(flow.shape(out)[-1])
    flow.axes.keep_whole("windows over positions", window, places)
    flow.set(out, [*dims[:-3], channels + window, places])


@TABLE.operator("triu tril")
def triangle(flow: Flow, op: Op) -> None:
    dims = flow.of(ref(op.args[0]))
    flow.axes.keep_whole("a triangle mask", *dims[-2:])
    flow.set(op.outputs[0], list(dims))
