"""All operators that the solver knows: a file for each family, with rules, traits and a table."""

from __future__ import annotations

from collections.abc import Callable

from modular_converter.parallel.solve.operators import products, views
from modular_converter.parallel.solve.operators.traits import UNKNOWN, Operator, Traits, opaque
from modular_converter.parallel.trace.graph import Op


OPERATORS: dict[str, Operator] = views.TABLE.operators | products.TABLE.operators


def operator_of(op: Op) -> Operator:
    """The operator of an operation; an unknown operator is pointwise if torch tags it so, else opaque."""
    known = OPERATORS.get(op.name) or OPERATORS.get(op.name.rstrip("_"))
    return known or Operator(op.name, products.pointwise if op.pointwise else opaque, UNKNOWN)


def traits_of(op: Op) -> Traits:
    """The traits of an operation."""
    return operator_of(op).traits


def functions_where(holds: Callable[[Traits], bool]) -> frozenset[str]:
    """Names of torch's functions that run operators with such traits."""
    return frozenset(name for o in OPERATORS.values() if holds(o.traits) for name in o.traits.functions)
