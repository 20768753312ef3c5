"""The axis rule of all pointwise operators, and the traits of some."""

from __future__ import annotations

from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators.traits import NO_GRADIENT, Linear, OperatorTable, Traits
from modular_converter.parallel.trace.graph import Op


TABLE = OperatorTable()


@TABLE.operator("mul", Traits(linear=Linear.EACH))
@TABLE.operator("where", Traits(linear=Linear.BRANCHES))
@TABLE.operator("masked_fill", Traits(moves=True, linear=Linear.FIRST, added=2))
@TABLE.operator("div", Traits(linear=Linear.NUMERATOR))
@TABLE.operator("add sub", Traits(linear=Linear.TOGETHER, added=1))
@TABLE.operator("neg", Traits(linear=Linear.FIRST))
@TABLE.operator("eq ne lt gt le ge sign floor ceil round bernoulli", NO_GRADIENT)
@TABLE.operator("floor_divide remainder fmod complex polar")
def pointwise(flow: Flow, op: Op) -> None:
    """The axes of all operands, broadcast."""
    out = op.outputs[0]
    flow.set(out, flow.broadcast(op.inputs(), len(flow.shape(out))))
