"""The solver's entry of an operator: its axis rule and its traits, in the table of its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from modular_converter.parallel.solve.flow import AxisRule, Flow
from modular_converter.parallel.trace.graph import Op


class Linear(Enum):
    """The operands in which an operator is linear, so that a partial sum may pass before the all-reduce."""

    NOWHERE = "nowhere"
    FIRST = "in the first operand, the others are indices or sizes"
    TOGETHER = "in all operands together, like a sum"
    EACH = "in each operand while the others are fixed, like a product"
    ENDS = "in the first and the last operand together, with indices between them"
    NUMERATOR = "in the first operand or any but the last, like a quotient"
    BRANCHES = "in all operands but the first together, like a choice"


@dataclass(frozen=True)
class Traits:
    """Facts about an operator beside its axes. The defaults hold for an unknown operator.

    Attributes:
        view: the output shares the memory of the first operand, so that a write into one is a write into both.
        part: the output is the first operand rearranged, or a part of it: a weight is still this weight.
        moves: each entry of the output is an entry of an operand, or a constant: token ids are still ids.
        product: weights contract with activations; a sharded weight sums the gradient of the product's input.
        linear: see ``Linear``.
        added: the position of an operand that is added to the result if it is a number; -1 if there is none.
        gradient: whether gradients pass to the operands.
        shape_only: only the shape and type of the operands are read.
        zeros: all entries of the output are zero.
        functions: names of torch's functions that run the operator, as in ``__torch_function__``.
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
    """An operator of torch; its name has no namespace and no overload."""

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
            names: separated by blanks; a name includes the in-place form, unless that has an entry of its own.
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
    """The rule of an unknown operator: its inputs and outputs stay whole."""
    flow.opaque[op.name] = flow.opaque.get(op.name, 0) + 1
    all_whole(flow, op, f"{op.name} (no rule)")


def all_whole(flow: Flow, op: Op, reason: str) -> None:
    """Keep the inputs and outputs of an operation whole."""
    for number in op.inputs():
        flow.axes.keep_whole(reason, *flow.of(number))
    for number in op.outputs:
        if number in flow.dims:
            flow.axes.keep_whole(reason, *flow.dims[number])
        else:
            flow.fresh(number, reason)
