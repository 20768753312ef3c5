"""Check the types of a sharded forward: a proof of a plan without numbers, from the two facts about each layout.

Each tensor of a trace has a type, in terms of torch's placements: whole on each rank (``Replicate``), cut along some of
its axes (``Shard``), or a sum whose terms the ranks hold (``Partial``). So does the gradient of a whole tensor: it is
whole, or each rank has a term. A layout changes types where tensors enter its region, or leave it with a collective. A plan
is wrong where types do not fit: a term is taken for the whole (a missing sum), the whole is summed (a doubled sum), or
only one of two operands is cut. The axes are those of the solver's operators; how it chose them, and where it found
gradients to sum, is not read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from modular_converter.parallel.plans.resolve import Piece, Resolution
from modular_converter.parallel.shard.shares import block_lengths
from modular_converter.parallel.solve.axes import LEAF, Seq, size
from modular_converter.parallel.solve.choose import solve_requirements
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import OUTPUT, follow, gives_zeros, keeps_sums
from modular_converter.parallel.solve.operators import operator_of, traits_of, views
from modular_converter.parallel.styles import acting, style_of
from modular_converter.parallel.styles.layout import GATHER_OVER_RANKS, SUM_OVER_RANKS, Enters, WeightLayout
from modular_converter.parallel.trace.graph import PARAM, ModuleCall, Op, Trace


@dataclass(frozen=True)
class TypeFault:
    """A place where types do not fit: the path of a module, parameter or output, and the reason."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True)
class Type:
    """The type of a tensor: the axes along which it is cut, and whether the ranks hold terms of a sum."""

    cut: frozenset[int] = frozenset()
    partial: bool = False

    @property
    def whole(self) -> bool:
        return not self.cut and not self.partial


@dataclass(frozen=True)
class _Step:
    """An operation with the types of its operands and results, and the layout that acts on it."""

    op: Op
    sources: tuple[Type, ...]
    results: tuple[Type, ...]
    layout: WeightLayout | None


def type_faults(trace: Trace, plan: Resolution) -> list[TypeFault]:
    """The places where the types of a plan do not fit; none if the plan is right.

    Args:
        plan: resolved for the model of the trace. Plans that divide experts have other types, and are not covered.
    """
    return list(dict.fromkeys(_faults(trace, plan)))


def has_faults(trace: Trace, plan: Resolution) -> bool:
    """Whether the types of a plan do not fit somewhere: the first such place ends the search."""
    return any(True for _ in _faults(trace, plan))


def _faults(trace: Trace, plan: Resolution) -> Iterator[TypeFault]:
    """The faults of the forward, or else those of sizes and gradients."""
    forward, known = _Forward(follow(trace), plan), 0
    for _ in forward.run():
        yield from forward.faults[known:]
        known = len(forward.faults)
    if not known:
        yield from _sizes(forward)
        yield from _Backward(forward).faults()


@dataclass
class _Forward:
    """The types of all tensors, in the order of the operations."""

    flow: Flow
    plan: Resolution
    types: dict[int, Type] = field(default_factory=dict)
    axes: dict[int, frozenset[int]] = field(default_factory=dict)
    free: dict[int, frozenset[int]] = field(default_factory=dict)
    """Tensor -> the axes along which all its entries are equal, so that it is whole and a share, too."""
    roots: dict[int, int] = field(default_factory=dict)
    """View -> the tensor whose memory it is of."""
    zeros: set[int] = field(default_factory=set)
    steps: list[_Step] = field(default_factory=list)
    faults: list[TypeFault] = field(default_factory=list)
    inside: set[int] = field(default_factory=set)
    """The axes along which results are cut."""
    cut_through: set[int] = field(default_factory=set)
    """Parameters that are cut through blocks, so that a rank's share is of no use before it is gathered."""
    pending: tuple[WeightLayout, frozenset[int], int] | None = None
    """The layout whose collective follows a call of the code, the axes of its weight, and the last operation of the call."""

    def run(self) -> Iterator[None]:
        """Follow all operations; stops after each one, and at the end."""
        trace = self.flow.trace
        names = {p.tensor: [n for n in p.names if n in self.plan.pieces] for p in trace.parameters}
        self.pieces = {tensor: self.plan.pieces[found[0]] for tensor, found in names.items() if found}
        self.names = {p.tensor: p.name for p in trace.parameters}
        cut = {
            tensor: frozenset(self._cut_axes(tensor, piece)) for tensor, piece in self.pieces.items() if piece.dim >= 0
        }
        tokens = {
            self.pieces[tensor].rule: -1 - tensor for tensor in cut if self._is_gathered_twin(tensor, cut[tensor])
        }
        for tensor, axes in cut.items():
            token = tokens.get(self.pieces[tensor].rule)
            self.types[tensor] = Type(axes if token is None else frozenset({token}))
        self.ends = {op.call: index for index, op in enumerate(trace.ops)}
        reasons = _reasons(self.flow)
        left: dict[int, list[ModuleCall]] = {}
        for call in trace.modules:
            if call.first < call.last:
                left.setdefault(call.last - 1, []).append(call)
        for index, op in enumerate(trace.ops):
            self._follow(index, op, reasons.get(index, {}))
            for call in left.get(index, ()):
                self._leave(call)
            yield
        for number in trace.outputs:
            if not self.of(number).whole:
                said = "a term of a sum" if self.of(number).partial else "a share"
                self.faults.append(
                    TypeFault("the model", f"output {trace.outputs.index(number)} is {said} on each rank")
                )
        yield

    def of(self, number: int) -> Type:
        return self.types.get(number, Type())

    def root(self, number: int) -> int:
        """The tensor of whose memory a tensor is a view, or itself."""
        return self.roots.get(number, number)

    def leaves(self, number: int) -> frozenset[int]:
        """The axes of a tensor, which stay as they are once the parameters are cut."""
        if number not in self.axes:
            self.axes[number] = frozenset(a.number for s in self.flow.of(number) for a in self.flow.axes.leaves(s))
        return self.axes[number]

    def _uncut(self, number: int) -> frozenset[int]:
        """The axes along which a tensor is whole, and no share."""
        return self.leaves(number) - self.free.get(number, frozenset())

    def _free(self, op: Op) -> frozenset[int]:
        """The axes along which the entries of the results are equal."""
        given = frozenset[int]().union(*map(self.leaves, op.inputs()))
        differ = frozenset[int]().union(*map(self._uncut, op.inputs()))
        made = frozenset[int]().union(*map(self.leaves, op.outputs))
        if traits_of(op).view and op.inputs():
            self.roots.update({out: self.root(op.inputs()[0]) for out in op.outputs})
        if operator_of(op).rule is views.uniform or op.name.endswith("_like"):
            return made
        return made - differ if op.name in _REPEATS else (given & made) - differ

    def _cut_axes(self, tensor: int, piece: Piece) -> Iterator[int]:
        """The axes along which a parameter is cut: the outermost factor of each block."""
        seq, start = self.flow.of(tensor)[piece.dim], 0
        for length in block_lengths(size(seq), piece.parts) if piece.parts else [size(seq)]:
            block = self.flow.axes.flat(self.flow.axes.cut(seq, start, start + length))
            if block and block[0].kind == LEAF:
                yield block[0].number
            else:
                self.cut_through.add(tensor)
                yield from self._of_seq(block)
            start += length

    def _is_gathered_twin(self, tensor: int, axes: frozenset[int]) -> bool:
        """Whether a weight is gathered along an axis that another of its dimensions has, too, which stays whole.

        An own number then stands for the cut until the gather.
        """
        piece = self.pieces[tensor]
        others = (seq for dim, seq in enumerate(self.flow.of(tensor)) if dim != piece.dim)
        is_gathered = all(role.leaves is GATHER_OVER_RANKS for role in piece.roles)
        return is_gathered and any(axes & self._of_seq(seq) for seq in others)

    def _of_result(self, cut: frozenset[int], number: int) -> frozenset[int]:
        """The axes of a tensor among those that are cut, and the numbers that stand for a cut."""
        return frozenset(leaf for leaf in cut if leaf < 0) | cut & self.leaves(number)

    def _follow(self, index: int, op: Op, reasons: dict[int, str]) -> None:
        """Give the results of an operation their types."""
        sources = tuple(map(self.of, op.inputs()))
        weight, layout = self._layout(op)
        own = self.of(weight).cut if weight is not None else frozenset[int]()
        cut = frozenset().union(*(source.cut for source in sources))
        summed = {leaf for c in self.flow.contractions if c.op == index for leaf in self._of_seq(c.seq)} & cut
        lookup = layout is not None and layout.of_table and op.name == "embedding"
        if layout is not None and layout.enters is Enters.SLICE:
            sources = tuple(self._sliced(n, source, own) for n, source in zip(op.inputs(), sources))
        for leaf in sorted(cut):
            if any(leaf in self._uncut(n) - source.cut for n, source in zip(op.inputs(), sources)):
                self._fault(op, "an operand is whole along an axis along which another is cut")
            elif leaf in reasons and not (lookup and leaf in own):
                self._fault(op, f"an operand is cut along an axis that must be whole: {reasons[leaf]}")
        partial = self._is_partial(op, bool(summed) or lookup and bool(own))
        left = cut - summed - (own if lookup else frozenset())
        if layout is not None and layout.leaves is not None:
            self.pending = layout, own, self._end(index, op, layout)
        if self.pending is not None and self.pending[2] == index:
            left, partial = self._collected(op, *self.pending[:2], left, partial)
            self.pending = None
        parameters = {self.flow.origin[n] for n in op.inputs() if n in self.flow.origin}
        if left and self.pending is None and parameters & self.cut_through and not self._is_view(op):
            self._fault(op, "a weight is cut through the blocks that the code tells apart: give parts")
        free = self._free(op)
        for number in op.outputs:
            self.types[number] = Type(self._of_result(left, number), partial)
            self.free[number] = free & self.leaves(number)
            if number in op.inputs() and (root := self.root(number)) != number:  # a write into a view
                old = self.of(root)
                self.types[root] = Type(old.cut | left & self.leaves(root), old.partial or partial)
                self.free[root] = free & self.free.get(root, frozenset())
        if not any(source.cut or source.partial for source in sources) and gives_zeros(op, self.zeros):
            self.zeros.update(op.outputs)
        self.inside |= set() if self._is_view(op) or self.pending is not None else left
        self.steps.append(_Step(op, sources, tuple(map(self.of, op.outputs)), layout))

    def _layout(self, op: Op) -> tuple[int | None, WeightLayout | None]:
        """The weight of an operation with a layout of its own, and this layout, as `RoleParameter` finds it."""
        for number in op.inputs():
            weight = self.flow.origin.get(number)
            if weight not in self.pieces or all(self.flow.origin.get(out) == weight for out in op.outputs):
                continue
            for layout in acting(self.pieces[weight].roles):
                is_own = op.name == "embedding" if layout.of_table else traits_of(op).product
                if layout.enters is Enters.WEIGHT or is_own:
                    return weight, layout
        return None, None

    def _is_view(self, op: Op) -> bool:
        """Whether the results are views of parameters."""
        return all(number in self.flow.origin for number in op.outputs)

    def _end(self, index: int, op: Op, layout: WeightLayout) -> int:
        """The operation after which a layout's collective acts: a bias is added after a sum, and before a gather."""
        call = self.flow.trace.calls[op.call] if op.call >= 0 else None
        if call is None or layout.leaves is SUM_OVER_RANKS and call.function not in _OF_SEVERAL:
            return index
        return self.ends[op.call]

    def _sliced(self, number: int, source: Type, own: frozenset[int]) -> Type:
        """The type of an operand after a whole one is sliced."""
        return Type(own & self.leaves(number), source.partial) if source.whole else source

    def _of_seq(self, seq: Seq) -> set[int]:
        return {atom.number for atom in self.flow.axes.leaves(seq)}

    def _is_partial(self, op: Op, summed: bool) -> bool:
        """Whether the results are terms of a sum."""
        partial = {number for number in op.inputs() if self.of(number).partial}
        if partial and (summed or not keeps_sums(op, partial | self.zeros)):
            self._fault(op, "terms of a sum are taken for the whole: a sum is missing")
        return summed or bool(partial)

    def _collected(
        self, op: Op, layout: WeightLayout, own: frozenset[int], left: frozenset[int], partial: bool
    ) -> tuple[frozenset[int], bool]:
        """The axes of a result, and whether it is partial, after the collective of a layout."""
        if layout.leaves is SUM_OVER_RANKS:
            if not partial:
                self._fault(op, f"{style_of(layout)} sums what each rank has whole, or a share of")
            return left, False
        assert layout.leaves is GATHER_OVER_RANKS
        if not own & left:
            self._fault(op, f"{style_of(layout)} gathers what is no share")
        return left - own, partial

    def _leave(self, call: ModuleCall) -> None:
        """Sum the first output of a module whose layout says so."""
        for layout in self.layouts(call):
            if layout.leaves is SUM_OVER_RANKS and call.outputs:
                found = self.of(call.outputs[0])
                if not found.partial:
                    self.faults.append(TypeFault(call.path, f"{style_of(layout)} sums what is no sum over the ranks"))
                self.types[call.outputs[0]] = Type(found.cut)

    def layouts(self, call: ModuleCall) -> list[WeightLayout]:
        """The styles of a module."""
        return [layout for path, layout in self.plan.hooks if path == call.path]

    def _fault(self, op: Op, reason: str) -> None:
        self.faults.append(TypeFault(op.module or "the model", f"{op.name}: {reason}"))


# Operators that repeat entries along a new axis.
_REPEATS = ("expand", "repeat")
# Functions of several products.
_OF_SEVERAL = ("einsum", "tensordot")


def _reasons(flow: Flow) -> dict[int, dict[int, str]]:
    """Operation -> the axes that it needs whole, each with a reason."""
    found: dict[int, dict[int, str]] = {}
    marked = [(mark.seq, mark.reason, mark.op) for mark in flow.axes.marks if mark.reason != OUTPUT]
    marked += [(lookup.seq, "rows are looked up in it", lookup.op) for lookup in flow.lookups]
    for seq, reason, op in marked:
        for atom in flow.axes.leaves(seq):
            found.setdefault(op, {}).setdefault(atom.number, reason)
    return found


def _sizes(forward: _Forward) -> Iterator[TypeFault]:
    """The integers of the code that must shrink, and do not."""
    needed, conflict = solve_requirements(forward.flow, forward.inside)
    if conflict is not None:
        yield TypeFault("the model", conflict.reason)
    for path, name in sorted(needed - set(forward.plan.attributes)):
        yield TypeFault(path or "the model", f"{name} must be the number of a rank")


WHOLE, TERM = "whole", "a term on each rank"


class _Backward:
    """The types of the gradients of whole tensors, against the order of the operations."""

    def __init__(self, forward: _Forward) -> None:
        self.forward, self.trace = forward, forward.flow.trace
        self.needs = self._needs()
        self.found: list[TypeFault] = []
        self.given: dict[int, list[tuple[int, str, tuple[int, ...]]]] = {}
        """Tensor -> its uses: the operation, the type of the gradient from it, and the operation's results."""
        self.calls: dict[int, list[ModuleCall]] = {}
        for call in self.trace.modules:
            for number in dict.fromkeys((*call.inputs, *call.outputs)):
                self.calls.setdefault(number, []).append(call)

    def _needs(self) -> set[int]:
        """The tensors that have gradients."""
        tensors = self.trace.tensors
        found = {number for number, tensor in enumerate(tensors) if tensor.kind == PARAM and tensor.floating}
        for op in self.trace.ops:
            if traits_of(op).gradient and any(number in found for number in op.inputs()):
                found |= {out for out in self._written(op) if tensors[out].floating and 0 not in tensors[out].shape}
        return found

    def _written(self, op: Op) -> set[int]:
        """The results, and the tensors of which they are views that are written into."""
        return {*op.outputs, *(self.forward.root(out) for out in op.outputs if out in op.inputs())}

    def faults(self) -> list[TypeFault]:
        end = len(self.trace.ops)
        for number in self.trace.outputs:
            self.given.setdefault(number, []).append((end, WHOLE, ()))
        for index in range(end - 1, -1, -1):
            step = self.forward.steps[index]
            if traits_of(step.op).gradient:
                self._pass(index, step)
        for number in sorted(self.needs):
            if self.trace.tensors[number].kind == PARAM and self.forward.of(number).whole:
                self._check_parameter(number)
        return self.found

    def _pass(self, index: int, step: _Step) -> None:
        """Give the operands of an operation their gradients; a part has one of its own."""
        outputs = [out for out in self._written(step.op) if out in self.needs]
        for results in [(out,) for out in outputs] if traits_of(step.op).part else [tuple(outputs)]:
            self._pass_from(index, step, results)

    def _pass_from(self, index: int, step: _Step, results: tuple[int, ...]) -> None:
        kinds = {kind for out in results if (kind := self._of(out, index)) is not None}
        if not kinds:
            return
        region = not all(result.whole for result in step.results)
        gathered = step.layout is not None and step.layout.leaves is not None
        for number, source in zip(step.op.inputs(), step.sources):
            if number not in self.needs:
                continue
            if gathered and not region and TERM in kinds and source.cut:
                self.found.append(
                    TypeFault(step.op.module, f"{step.op.name}: the gradient of its result is not summed")
                )
            is_weight = self.forward.flow.origin.get(number) in self.forward.pieces
            entered = (
                step.layout is not None and step.layout.enters in (Enters.OPERANDS, Enters.SLICE) and not is_weight
            )
            kind = WHOLE if entered else TERM if region or TERM in kinds and not source.cut else WHOLE
            self.given.setdefault(number, []).append((index, kind, results))

    def _of(self, number: int, index: int) -> str | None:
        """The type of a tensor's gradient before its use in an operation; None if it has none."""
        uses = [use for use in self.given.get(number, []) if use[0] > index]
        if not uses:
            return None
        for call in self.calls.get(number, ()):
            for layout in self.forward.layouts(call):
                uses = self._entered(number, call, layout, uses)
        kinds = {kind for _, kind, _ in uses}
        if len(kinds) > 1 and self.forward.of(number).whole:
            place = self._place(number)
            self.found.append(
                TypeFault(place, "its gradient is whole from one use, and a term on each rank from another")
            )
        return TERM if TERM in kinds else WHOLE

    def _entered(
        self, number: int, call: ModuleCall, layout: WeightLayout, uses: list[tuple[int, str, tuple[int, ...]]]
    ) -> list[tuple[int, str, tuple[int, ...]]]:
        """The uses of a tensor, those in the region of a module's layout with a summed gradient."""
        if layout.enters is Enters.INPUTS and number in call.inputs:
            own = [use for use in uses if call.first <= use[0] < call.last]
        elif layout.enters is Enters.OUTPUT and call.outputs == (number,):
            own = [use for use in uses if use[0] >= call.last]
        elif layout.enters is Enters.TAIL and call.outputs == (number,):
            own = [use for use in uses if use[0] >= call.last and self._is_tail(number, use[2])]
        else:
            return uses
        if any(kind == WHOLE for _, kind, _ in own):
            self.found.append(TypeFault(call.path, f"{style_of(layout)} sums a gradient that is whole"))
        return [(index, WHOLE if (index, kind, outputs) in own else kind, outputs) for index, kind, outputs in uses]

    def _is_tail(self, number: int, outputs: Collection[int]) -> bool:
        """Whether results are the last part of a tensor."""
        axes = self.forward.flow.axes
        whole = [atom.number for atom in axes.leaves(self.forward.flow.of(number)[-1])]
        parts = [[atom.number for atom in axes.leaves(self.forward.flow.of(out)[-1])] for out in outputs]
        return all(part == whole[len(whole) - len(part) :] for part in parts)

    def _check_parameter(self, number: int) -> None:
        kind, name = self._of(number, -1), self.forward.names[number]
        piece = self.forward.pieces.get(number)
        summed = piece is not None and any(role.enters is Enters.WEIGHT for role in piece.roles)
        if kind is not None and summed != (kind == TERM):
            said = "is whole, and summed" if summed else "is a term on each rank, and not summed"
            self.found.append(TypeFault(name, f"its gradient {said}"))

    def _place(self, number: int) -> str:
        if number in self.forward.names:
            return self.forward.names[number]
        return next((op.module for op in self.trace.ops if number in op.outputs), "") or "the model"
