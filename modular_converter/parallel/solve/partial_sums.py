"""Whether partial sums may pass from a product to the output of its module before the all-reduce.

Experts are summed once a module, after routing weights and scatters. This is right only if all operations in between are
linear in the partial sum. Norms and activations are not; then each product needs a sum of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators import traits_of
from modular_converter.parallel.solve.operators.traits import Linear
from modular_converter.parallel.trace.graph import ModuleCall, Op


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
