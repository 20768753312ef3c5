"""Axis rules of operators that make new tensors."""

from __future__ import annotations

from dataclasses import replace

from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators.traits import SHAPE_ONLY, OperatorTable, Traits, opaque
from modular_converter.parallel.solve.operators.views import identity
from modular_converter.parallel.trace.graph import Op, Source


TABLE = OperatorTable()


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
