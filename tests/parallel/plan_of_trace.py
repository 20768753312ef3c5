"""The full plan of a trace, as the first attempt of a derivation has it."""

from __future__ import annotations

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.trace.graph import Trace


def plan_of_trace(trace: Trace, gather: bool = True, pairs: bool = True) -> Plan:
    return plan_of(follow(trace), Aim(gather, pairs))
