"""Derive a plan and prove it: threads as a first screen, then gloo processes, then the library's own loader."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from modular_converter.parallel.compare import Verdict, check_in_threads
from modular_converter.parallel.derive import derive
from modular_converter.parallel.graph import Trace
from modular_converter.parallel.plan import Plan
from modular_converter.parallel.ranks import RankPool, Task
from modular_converter.parallel.tiny.build import Small, Target, build
from modular_converter.parallel.trace import record


@dataclass(frozen=True)
class Derived:
    """A small model, its trace and the plan.

    Attributes:
        screen: the verdict of the thread ranks.
        retreat: what the full plan failed of, when a more careful one was taken; empty for the full plan.
    """

    target: Target
    small: Small
    trace: Trace
    plan: Plan
    screen: Verdict
    overrides: tuple[tuple[str, Any], ...] = ()
    retreat: str = ""


def derive_model(target: Target, overrides: Mapping[str, Any] | None = None, ranks: int = 2) -> Derived:
    """Build, trace, derive, and screen. Where the full plan fails the screen, more careful ones are tried.

    Raises:
        PlanError: the model cannot be built or traced.
    """
    small = build(target, overrides)
    trace = record(small.model, small.inputs, target.name)
    options = tuple((overrides or {}).items())
    first: Derived | None = None
    for gather, pairs in ((True, True), (False, True), (True, False)):
        plan = derive(trace, gather=gather, pairs=pairs)
        verdict = check_in_threads(small.model, plan, small.inputs, ranks)
        retreat = f"{first.screen.layer}: {first.screen.reason}" if first else ""
        found = Derived(target, small, trace, plan, verdict, options, retreat)
        if verdict.passed:
            return found
        first = first or found
    assert first is not None
    return first


def prove(derived: Derived, plan: Plan, pool: RankPool, library: bool = False) -> Verdict:
    """Run a plan on the pool's processes against the whole model.

    Args:
        library: through transformers' own loader instead of our application.

    Returns:
        The first failing verdict of a rank, or the worst passing one.

    Raises:
        RankError: a rank died or hung.
    """
    folder = ""
    if library:
        folder = tempfile.mkdtemp(prefix="modular-plan-")
        model: Any = derived.small.model
        model.save_pretrained(folder)
    try:
        route = "library" if library else "ours"
        task = Task(derived.target, derived.small.strategy, derived.overrides, str(plan), route, folder)
        verdicts: list[Verdict] = pool.run(task)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    failed = [verdict for verdict in verdicts if not verdict.passed]
    return failed[0] if failed else max(verdicts, key=lambda v: (v.output_error, v.gradient_error))
