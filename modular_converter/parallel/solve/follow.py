"""Follow a trace: axes through all operations, the inputs that each tensor depends on, and how far partial sums may pass.

Experts are summed once a module, after routing weights and scatters. This is right only if all operations in between are
linear in the partial sum. Norms and activations are not; then each product needs a sum of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from modular_converter.parallel.solve.axes import size
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators import operator_of, traits_of
from modular_converter.parallel.solve.operators.traits import Linear, opaque
from modular_converter.parallel.trace.graph import INPUT, PARAM, ModuleCall, Op, Trace


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


PARAMETERS = "*parameters"


def dependence(trace: Trace) -> list[frozenset[str]]:
    """For each tensor the names of the inputs, and ``PARAMETERS``, on which its values depend.

    A write into a view counts for the viewed tensor and all its views.
    """
    own: list[frozenset[str]] = [_source(tensor.kind, tensor.name) for tensor in trace.tensors]
    root = list(range(len(own)))
    written: dict[int, frozenset[str]] = {}
    for op in trace.ops:
        entering = _entering(op, own, root, written)
        for number in op.outputs:
            if number in op.inputs():
                written[root[number]] = written.get(root[number], frozenset()) | entering
                continue
            own[number] = entering
            if traits_of(op).view and op.inputs():
                root[number] = root[op.inputs()[0]]
    return [found | written.get(root[number], frozenset()) for number, found in enumerate(own)]


def _source(kind: str, name: str) -> frozenset[str]:
    if kind == PARAM:
        return frozenset({PARAMETERS})
    return frozenset({name}) if kind == INPUT else frozenset()


def _entering(
    op: Op, own: list[frozenset[str]], root: list[int], written: dict[int, frozenset[str]]
) -> frozenset[str]:
    if traits_of(op).shape_only:
        return frozenset()
    found: frozenset[str] = frozenset()
    for number in op.inputs():
        found |= own[number] | written.get(root[number], frozenset())
    return found


def sums_at_border(flow: Flow, owner: str, rows: Collection[int]) -> bool:
    """Whether all calls of a module return only partial sums of its products with some parameters.

    Args:
        owner: the module's path.
        rows: tensor numbers of the parameters with a sharded contracted axis.
    """
    calls = [call for call in flow.trace.modules if call.path == owner]
    return bool(calls) and all(_is_linear(flow, call, rows) for call in calls)


def _is_linear(flow: Flow, call: ModuleCall, rows: Collection[int]) -> bool:
    partial: set[int] = set()
    zeros: set[int] = set()
    for op in flow.trace.ops[call.first : call.last]:
        touched = [number for number in op.inputs() if number in partial]
        if any(flow.origin.get(number) in rows for number in op.inputs()):
            if all(flow.origin.get(out) in rows for out in op.outputs):
                continue  # a view of the parameter
            if touched:
                return False
            partial.update(op.outputs)
        elif touched:
            if not keeps_sums(op, partial | zeros):
                return False
            partial.update(op.outputs)
        elif gives_zeros(op, zeros):
            zeros.update(op.outputs)
    return bool(call.outputs) and set(call.outputs) <= partial


def gives_zeros(op: Op, zeros: Collection[int]) -> bool:
    """Whether all entries of the results are zero."""
    traits, given = traits_of(op), op.inputs()
    moved = traits.moves and bool(given) and all(number in zeros for number in given) and not _adds_a_number(op)
    return traits.zeros or moved or op.name == "scalar_tensor" and op.args[0] == 0


def _adds_a_number(op: Op) -> bool:
    """Whether the result contains a number of the code, which each rank would add."""
    at = traits_of(op).added
    number = op.args[at] if 0 <= at < len(op.args) else None
    return isinstance(number, (int, float)) and number != 0


def keeps_sums(op: Op, partial: Collection[int]) -> bool:
    """Whether an operation on partial sums gives a partial sum of the same whole."""
    inside = [number in partial for number in op.inputs()]
    linear = traits_of(op).linear
    if _adds_a_number(op) or op.keyword("rounding_mode") is not None:
        return False
    if linear is Linear.FIRST:
        return inside[0] and not any(inside[1:])
    if linear is Linear.TOGETHER:
        return all(inside)
    if linear is Linear.BRANCHES:
        return not inside[0] and all(inside[1:])
    if linear is Linear.ENDS:
        return inside[0] and inside[-1]
    divides = linear is Linear.NUMERATOR and (len(inside) == 1 or not inside[-1])
    return sum(inside) == 1 and (linear is Linear.EACH or divides)
