"""Follow axes through a trace: one pass over the operations, with the rules of their operators."""

from __future__ import annotations

from modular_converter.parallel.solve.axes import size
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators import operator_of
from modular_converter.parallel.solve.operators.traits import opaque
from modular_converter.parallel.trace.graph import Trace


OUTPUT = "an output of the model"


def follow(trace: Trace) -> Flow:
    """The axes of a recorded forward; those of an unknown operator and of the model's outputs stay whole."""
    flow = Flow(trace)
    for flow.index, op in enumerate(trace.ops):
        flow.axes.op = flow.index
        for number in op.inputs():
            flow.of(number)
        operator = operator_of(op)
        operator.rule(flow, op)
        for number in op.outputs:
            if not _fits(flow, number):
                flow.dims.pop(number, None)
                opaque(flow, op)
        if operator.traits.part:
            flow.carry(op, op.inputs()[0])
    for number in trace.outputs:
        flow.axes.keep_whole(OUTPUT, *flow.of(number))
    return flow


def _fits(flow: Flow, number: int) -> bool:
    """Whether an output's axes fit its shape, which may differ in a form of the operator that the rule does not know."""
    dims, shape = flow.dims.get(number), flow.shape(number)
    if dims is None or len(dims) != len(shape):
        return False
    return all(size(seq) == length or not length for seq, length in zip(dims, shape))
