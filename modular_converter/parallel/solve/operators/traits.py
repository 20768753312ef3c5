"""The entry of an operator for the solver: its axis rule and its traits, in the table of its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from modular_converter.parallel.solve.flow import AxisRule, Flow
from modular_converter.parallel.trace.graph import Op


class Linear(Enum):
    """In which operands an operator is linear: a partial sum may pass there before the ranks add it up."""

    NOWHERE = "nowhere"
    FIRST = "in the first operand, the others are indices or sizes"
    TOGETHER = "in all operands together, like a sum"
    EACH = "in each operand while the others are fixed, like a product"
    ENDS = "in the first and the last operand together, with indices between them"
    NUMERATOR = "in the first operand or any but the last, like a quotient"
    BRANCHES = "in all operands but the first together, like a choice"


@dataclass(frozen=True)
class Traits:
    """Facts about an operator beside its axes. The defaults hold for an operator of which nothing is known.

    Attributes:
        view: the output shares the memory of the first operand, so that a write into one is a write into both.
        part: the output is the first operand rearranged, or a part of it: of a weight, it is still that weight.
        moves: every entry of the output is an entry of an operand, or a constant: of token ids, still ids.
        product: weights contract with activations; as a sharded weight it sums the gradient of its own input.
        linear: see ``Linear``.
        added: the position of an operand that comes into the result as it is where it is a number; -1 for none.
        gradient: whether gradients pass to the operands.
        shape_only: nothing of the operands but their shape and type is read.
        zeros: all entries of the output are zero.
        functions: names of torch's functions that run the operator, as a subclass of ``Tensor`` sees them.
    """

    view: bool = False
    part: bool = False
    moves: bool = False
    product: bool = False
    linear: Linear = Linear.NOWHERE
    added: int = -1
    gradient: bool = True
    shape_only: bool = False
    zeros: bool = False
    functions: frozenset[str] = frozenset()


UNKNOWN = Traits()
MOVE = Traits(moves=True, linear=Linear.FIRST)
PART = Traits(part=True, moves=True, linear=Linear.FIRST)
VIEW = Traits(view=True, part=True, moves=True, linear=Linear.FIRST)
NO_GRADIENT = Traits(gradient=False)
SHAPE_ONLY = Traits(gradient=False, shape_only=True)


@dataclass(frozen=True)
class Operator:
    """One operator of torch, by its name without namespace and overload."""

    name: str
    rule: AxisRule
    traits: Traits


@dataclass
class OperatorTable:
    """The operators of one file, filled by its decorators."""

    operators: dict[str, Operator] = field(default_factory=dict)

    def operator(self, names: str, traits: Traits = UNKNOWN, functions: str = "") -> Callable[[AxisRule], AxisRule]:
        """Register a rule for operators of the same traits.

        Args:
            names: separated by blanks; a name stands for its in-place form too, unless that has an entry of its own.
            functions: torch's functions that run these operators, separated by blanks.
        """
        full = Traits(**(vars(traits) | {"functions": frozenset(functions.split())}))

        def register(rule: AxisRule) -> AxisRule:
            for name in names.split():
                if name in self.operators:
                    raise ValueError(f"{name} has two rules")
                self.operators[name] = Operator(name, rule, full)
            return rule

        return register


def opaque(flow: Flow, op: Op) -> None:
    """Nothing is known of the operator: its inputs and outputs stay whole."""
    flow.opaque[op.name] = flow.opaque.get(op.name, 0) + 1
    reason = f"{op.name} (no rule)"
    for number in op.inputs():
        for seq in flow.of(number):
            flow.whole(seq, reason)
    for number in op.outputs:
        if number in flow.dims:
            for seq in flow.dims[number]:
                flow.whole(seq, reason)
        else:
            flow.fresh(number, reason)
