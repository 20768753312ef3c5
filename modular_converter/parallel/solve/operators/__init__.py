"""All operators that the solver knows: a file for each family, with rules, traits and a table."""

from __future__ import annotations

from collections.abc import Callable

from modular_converter.parallel.solve.operators import (
    creation,
    cuts,
    elementwise,
    lookups,
    norms,
    positions,
    products,
    reductions,
    views,
)
from modular_converter.parallel.solve.operators.traits import UNKNOWN, Operator, OperatorTable, Traits, opaque
from modular_converter.parallel.trace.graph import Op


FAMILIES = (views, cuts, elementwise, products, reductions, norms, positions, lookups, creation)


def _joined(tables: list[OperatorTable]) -> dict[str, Operator]:
    found: dict[str, Operator] = {}
    for table in tables:
        twice = sorted(found.keys() & table.operators.keys())
        if twice:
            raise ValueError(f"operators with two rules: {', '.join(twice)}")
        found |= table.operators
    return found


OPERATORS = _joined([family.TABLE for family in FAMILIES])


def operator_of(op: Op) -> Operator:
    """The operator of an operation; an unknown operator is pointwise if torch tags it so, else opaque."""
    known = OPERATORS.get(op.name) or OPERATORS.get(op.name.rstrip("_"))
    return known or Operator(op.name, elementwise.pointwise if op.pointwise else opaque, UNKNOWN)


def traits_of(op: Op) -> Traits:
    """The traits of an operation."""
    return operator_of(op).traits


def functions_where(holds: Callable[[Traits], bool]) -> frozenset[str]:
    """Names of torch's functions that run operators with such traits."""
    return frozenset(name for o in OPERATORS.values() if holds(o.traits) for name in o.traits.functions)
