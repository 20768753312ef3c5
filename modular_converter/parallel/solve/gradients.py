"""Find the places where whole tensors enter a sharded region, so that their gradients need an all-reduce.

A rank with some of the heads computes only their contribution to the gradient of a tensor that all heads read. Column-wise
weights sum the gradient of their input; every other entry needs a rule, for a parameter or for a module's output.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from modular_converter.parallel.plans.parts import Part
from modular_converter.parallel.solve.axes import size
from modular_converter.parallel.solve.block_lengths import parts_of
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators import traits_of
from modular_converter.parallel.trace.graph import PARAM, Op


@dataclass
class Entries:
    """Parameters and module outputs whose gradients need a sum, and entries (tensor numbers) where no rule is possible."""

    parameters: set[int] = field(default_factory=set)
    outputs: set[str] = field(default_factory=set)
    tails: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


class GradientFlow:
    """Consumers and producers of a trace's tensors, and the sharded tensors."""

    def __init__(self, flow: Flow, chosen: set[int]) -> None:
        self.flow = flow
        self.trace = flow.trace
        self.chosen = chosen
        self.needs = self._needs_gradient()
        self.sharded = {n for n in flow.dims if self._is_sharded(n)}
        self.consumers: dict[int, list[int]] = {}
        self.producer: dict[int, int] = {}
        for index, op in enumerate(self.trace.ops):
            for number in op.inputs():
                self.consumers.setdefault(number, []).append(index)
            for number in op.outputs:
                self.producer.setdefault(number, index)
        self.memo: dict[int, bool] = {}

    def _is_sharded(self, number: int) -> bool:
        axes = self.flow.axes
        return any(atom.number in self.chosen for seq in self.flow.dims[number] for atom in axes.leaves(seq))

    def _needs_gradient(self) -> set[int]:
        needs = {n for n, tensor in enumerate(self.trace.tensors) if tensor.kind == PARAM and tensor.floating}
        for op in self.trace.ops:
            if traits_of(op).gradient and any(number in needs for number in op.inputs()):
                found = ((out, self.trace.tensors[out]) for out in op.outputs)
                needs |= {out for out, tensor in found if tensor.floating and 0 not in tensor.shape}
        return needs

    def handled(self, op: Op) -> bool:
        """Whether an operation is a product with a sharded parameter, which sums the gradient of its input itself."""
        origins = [self.flow.origin.get(number) for number in op.inputs()]
        return (
            any(number in self.sharded and origin is not None for number, origin in zip(op.inputs(), origins))
            and traits_of(op).product
        )

    def inside(self, number: int) -> bool:
        """Whether all uses of a whole tensor lead into a sharded region, so that its gradient is a partial sum."""
        if number in self.memo:
            return self.memo[number]
        self.memo[number] = False
        users = [i for i in self.consumers.get(number, ()) if self._matters(i)]
        result = bool(users) and number not in self.trace.outputs
        for index in users:
            op = self.trace.ops[index]
            inner = (out for out in op.outputs if out in self.needs)
            result = result and (self.enters(index) or not self._any_sharded(op) and all(map(self.inside, inner)))
        self.memo[number] = result
        return result

    def _matters(self, index: int) -> bool:
        return any(out in self.needs for out in self.trace.ops[index].outputs)

    def _any_sharded(self, op: Op) -> bool:
        return any(out in self.sharded for out in op.outputs)

    def enters(self, index: int) -> bool:
        """Whether the gradients of this operation's whole operands must be summed."""
        op = self.trace.ops[index]
        return self._any_sharded(op) and not self.handled(op)


def gradient_entries(flow: Flow, chosen: set[int]) -> Entries:
    """All places where a gradient must be summed."""
    graph = GradientFlow(flow, chosen)
    found = Entries()
    for index in range(len(flow.trace.ops)):
        if not graph.enters(index):
            continue
        for number in flow.trace.ops[index].inputs():
            if number in graph.needs and number not in graph.sharded:
                _reach(graph, number, found)
    return found


def _reach(graph: GradientFlow, number: int, found: Entries) -> None:
    """Walk up from an entering tensor to the first places for a rule."""
    trace = graph.trace
    if not graph.inside(number):
        tail = _tail(graph, number)
        if tail is None:
            found.lost.add(number)
        else:
            found.tails[tail[0]] = tail[1]
        return
    if trace.tensors[number].kind == PARAM:
        found.parameters.add(number)
        return
    module = _border(graph, number)
    if module is not None:
        found.outputs.add(module)
        return
    producer = graph.producer.get(number)
    parents = trace.ops[producer].inputs() if producer is not None else ()
    for parent in parents:
        if parent in graph.needs and parent not in graph.sharded:
            _reach(graph, parent, found)
        elif parent in graph.needs:
            found.lost.add(number)


def _border(graph: GradientFlow, number: int) -> str | None:
    """The outermost module whose only output is such a tensor in each call, and this tensor in one call; else None."""
    calls: dict[str, list[tuple[int, ...]]] = {}
    for call in graph.trace.modules:
        calls.setdefault(call.path, []).append(call.outputs)
    paths = [path for path, outputs in calls.items() if path and (number,) in outputs]
    alike = [path for path in paths if all(_enters_alone(graph, outputs) for outputs in calls[path])]
    return min(alike, key=len) if alike else None


def _enters_alone(graph: GradientFlow, outputs: tuple[int, ...]) -> bool:
    return len(outputs) == 1 and outputs[0] not in graph.sharded and graph.inside(outputs[0])


def _tail(graph: GradientFlow, number: int) -> tuple[str, tuple[Part, ...]] | None:
    """A module whose output is cut in two parts, of which only the last enters a sharded region, as in latent attention.

    Returns:
        The module and the parts of its output; None if the tensor is no such output.
    """
    path = next((call.path for call in graph.trace.modules if call.outputs == (number,) and call.path), None)
    users = [index for index in graph.consumers.get(number, ()) if graph._matters(index)]
    cuts = [graph.trace.ops[index] for index in users]
    if path is None or not cuts or not all(traits_of(op).part for op in cuts):
        return None
    pieces = list(dict.fromkeys(out for op in cuts for out in op.outputs))
    if sorted(map(graph.inside, pieces)) != [False, True]:
        return None
    axes, axis = graph.flow.axes, graph.flow.of(number)[-1]
    seqs = [graph.flow.of(piece)[-1] for piece in sorted(pieces, key=graph.inside)]
    if axes.leaves(axis) != [leaf for seq in seqs for leaf in axes.leaves(seq)]:
        return None  # entries are left out, or the first part enters
    parts = parts_of(graph.flow, axis, [size(seq) for seq in seqs], path)
    return None if parts is None else (path, parts)
