"""The sources of each tensor of a trace: model inputs by name, and parameters. Reading a shape does not count."""

from __future__ import annotations

from modular_converter.parallel.solve.operators import traits_of
from modular_converter.parallel.trace.graph import INPUT, PARAM, Op, Trace


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
