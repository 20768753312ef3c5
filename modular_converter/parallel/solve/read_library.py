"""Read a plan in transformers' vocabulary; a trace of the model gives the facts that this vocabulary lacks."""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.patterns import matches
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.solve.block_lengths import parts_of
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.styles.layout import Enters
from modular_converter.parallel.trace.graph import Trace


# Styles without an effect here: a disabled rule, and the owner of parameters with rules of their own.
_SILENT = {"replicate", "local_params"}


def from_library(model: str, rules: Mapping[str, str], trace: Trace | None = None) -> Plan:
    """A plan from a ``base_model_tp_plan``, where packed styles have two equal parts.

    Args:
        model: the name of the model, for the plan.
        rules: layer pattern -> style.
        trace: of the model, for styles that cut the output of a module.

    Raises ``PlanFormatError`` for an unknown style, and for a style that needs the trace if there is none.
    """
    flow = follow(trace) if trace is not None and any(map(_cuts_output, rules.values())) else None
    lines = [f"plan {model}"]
    for pattern, style in rules.items():
        parts = " parts=1:1" if style in STYLES and STYLES[style].packed else ""
        if _cuts_output(style):
            parts = f" parts={_cut_of_output(flow, pattern)}"
        if style not in _SILENT:
            lines.append(f"rule {pattern} {style}{parts}")
    return Plan.parse("\n".join(lines))


def _cuts_output(style: str) -> bool:
    return style in STYLES and STYLES[style].layout.enters is Enters.TAIL


def _cut_of_output(flow: Flow | None, pattern: str) -> str:
    """The parts into which later code cuts a module's output. Raises ``PlanFormatError`` if they are unknown."""
    calls = () if flow is None else flow.trace.modules
    outputs = [number for call in calls if matches(pattern, [call.path]) for number in call.outputs]
    for number in outputs:
        assert flow is not None
        cuts = [op for op in flow.trace.ops if op.name.startswith("split") and number in op.inputs()]
        for op in cuts:
            lengths = [flow.shape(out)[-1] for out in op.outputs]
            parts = parts_of(flow, flow.of(number)[-1], lengths, op.module)
            if parts:
                return ":".join(map(str, parts))
    raise PlanFormatError(f"{pattern}: the cut of its output is unknown; it needs a trace of the model")
