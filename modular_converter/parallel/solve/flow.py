"""The axes of all tensors of a trace, and the remarks that the rules of operators make about them.

The remarks say which axes are contracted, looked up or whole, and which integers of the code state a length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modular_converter.parallel.solve.axes import Axes, Seq
from modular_converter.parallel.trace.graph import BUFFER, CONST, INPUT, PARAM, Arg, Op, Parameter, Ref, Source, Trace


AxisRule = Callable[["Flow", Op], None]


@dataclass(frozen=True)
class Contraction:
    """An axis that a product sums over; ``parameters`` are the ``operands`` that are parameters."""

    seq: Seq
    op: int
    operands: tuple[int, int]
    parameters: tuple[int, ...]


@dataclass(frozen=True)
class Lookup:
    """An axis whose entries are selected by index."""

    seq: Seq
    op: int
    source: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class Requirement:
    """An integer of the model's code that must equal the local length of an axis."""

    seq: Seq
    source: Source
    op: int
    what: str


@dataclass(frozen=True)
class Stretch:
    """A part of an axis, and the integer in the model's code that cuts it off."""

    seq: Seq
    start: int
    stop: int
    source: Source


@dataclass(frozen=True)
class Count:
    """An axis of equal blocks, and the integer in the model's code that counts them."""

    seq: Seq
    source: Source


@dataclass
class Flow:
    """The axes of all tensors of a trace, and the remarks about them.

    Attributes:
        dims: tensor -> the axis of each dimension.
        origin: tensor -> the parameter of which it is a view, slice or selection.
        opaque: operator without a rule -> the number of its operations.
    """

    trace: Trace
    axes: Axes = field(default_factory=Axes)
    dims: dict[int, list[Seq]] = field(default_factory=dict)
    origin: dict[int, int] = field(default_factory=dict)
    contractions: list[Contraction] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    requirements: list[Requirement] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    opaque: dict[str, int] = field(default_factory=dict)
    index: int = 0

    @cached_property
    def uses_by_tensor(self) -> dict[int, list[tuple[int, Op]]]:
        """Parameter tensor -> its ``uses``; valid after all operations are followed."""
        found: dict[int, list[tuple[int, Op]]] = {}
        for index, op in enumerate(self.trace.ops):
            for tensor in dict.fromkeys(self.origin[n] for n in op.inputs() if n in self.origin):
                if not all(self.origin.get(out) == tensor for out in op.outputs):
                    found.setdefault(tensor, []).append((index, op))
        return found

    def of(self, number: int) -> list[Seq]:
        """The axes of a tensor; new axes of inputs, buffers and constants must stay whole."""
        found = self.dims.get(number)
        if found is None:
            tensor = self.trace.tensors[number]
            found = [self.axes.leaf(length) for length in tensor.shape]
            self.dims[number] = found
            if tensor.kind in (INPUT, BUFFER, CONST):
                self.axes.keep_whole(f"{_KIND_NAMES[tensor.kind]} {tensor.name}".strip(), *found)
            if tensor.kind == PARAM:
                self.origin[number] = number
        return found

    def set(self, number: int, dims: list[Seq]) -> None:
        """Give a tensor its axes. The old axes of an in-place target are unified with them."""
        if number in self.dims:
            for old, new in zip(self.dims[number], dims):
                self.axes.unify(old, new)
        else:
            self.dims[number] = dims

    def shape(self, number: int) -> tuple[int, ...]:
        return self.trace.tensors[number].shape

    def kept_whole(self, length: int, reason: str) -> Seq:
        """A new axis that stays whole."""
        seq = self.axes.leaf(length)
        self.axes.keep_whole(reason, seq)
        return seq

    def fresh(self, number: int, reason: str = "") -> None:
        """Give an output new axes, which must stay whole if there is a reason."""
        dims = [self.axes.leaf(length) for length in self.shape(number)]
        if reason:
            self.axes.keep_whole(reason, *dims)
        self.set(number, dims)

    def broadcast(self, numbers: Iterable[int], rank: int) -> list[Seq]:
        """The axes of tensors, aligned from the right and unified; axes of length 1 stretch."""
        dims: list[Seq] = [()] * rank
        for number in numbers:
            given = self.of(number)
            self.align(dims, given)
            for back in range(1, min(rank, len(given)) + 1):
                dims[-back] = dims[-back] or given[-back]
        return dims

    def align(self, left: Sequence[Seq], right: Sequence[Seq]) -> None:
        """Unify axes, aligned from the right, except axes of length 1."""
        for a, b in zip(reversed(left), reversed(right)):
            if a and b:
                self.axes.unify(a, b)

    def carry(self, op: Op, source: int) -> None:
        """Give the outputs the source's origin, if it has one."""
        if source in self.origin:
            for out in op.outputs:
                self.origin.setdefault(out, self.origin[source])

    def contract(self, left: Seq, right: Seq, a: int, b: int) -> None:
        """Sum over an axis of two operands."""
        self.axes.unify(left, right)
        parameters = tuple(self.origin[n] for n in (a, b) if n in self.origin)
        self.contractions.append(Contraction(left, self.index, (a, b), parameters))

    def require(self, seq: Seq, source: Source | None, what: str) -> None:
        if source is not None and source.value != -1:
            self.requirements.append(Requirement(seq, source, self.index, what))

    def call_integers(self, op: Op, *functions: str) -> tuple[Source, ...] | None:
        """The integers in the model's own call, if it was a call of one of these functions."""
        if op.call < 0:
            return None
        call = self.trace.calls[op.call]
        return call.integers if call.function in functions else None


def uses(flow: Flow, parameter: Parameter) -> list[tuple[int, Op]]:
    """The operations that compute with a parameter or its views."""
    return flow.uses_by_tensor.get(parameter.tensor, [])


_KIND_NAMES = {INPUT: "an input:", BUFFER: "a buffer:", CONST: "a constant"}


def ref(value: Arg) -> int:
    """The tensor number of an argument that must be a tensor."""
    if not isinstance(value, Ref):
        raise TypeError(f"a tensor expected, not {value!r}")
    return value.id


def integer_argument(value: Arg, default: int = 0) -> int:
    return default if value is None or isinstance(value, (str, tuple, Ref)) else int(value)


def integer_arguments(value: Arg) -> list[int]:
    """A list of integers from an argument: one integer, a tuple, or nothing."""
    if isinstance(value, tuple):
        return [integer_argument(item) for item in value]
    return [] if value is None else [integer_argument(value)]


def argument(op: Op, position: int, name: str, default: Arg = None) -> Arg:
    """An argument by position or by name."""
    return op.args[position] if len(op.args) > position else op.keyword(name, default)


def only_integer(given: Iterable[Source], value: int) -> Source | None:
    """The integer of a call with this value; None if there are two from different sources."""
    found = {source for source in given if source.value == value}
    return found.pop() if len(found) == 1 else None
