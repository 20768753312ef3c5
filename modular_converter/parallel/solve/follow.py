"""Carry axes through a trace: one pass over the operations, each with the rule of its operator."""

from __future__ import annotations

from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators import operator_of
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
        if operator.traits.part:
            flow.carry(op, op.inputs()[0])
    for number in trace.outputs:
        for seq in flow.of(number):
            flow.whole(seq, OUTPUT)
    return flow
