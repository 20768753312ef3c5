"""Compare two plans of one model: each line that differs is tried in the other plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.class_settings import gathered_plan
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.prove import Derived
from modular_converter.parallel.solve.cost import cost
from modular_converter.parallel.solve.derive import from_library
from modular_converter.parallel.styles import STYLES


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the reason of a refusal ("" if the plan holds), and the cost on a rank."""

    reason: str
    bytes_rank: int
    collectives: int


@dataclass(frozen=True)
class Point:
    """A pattern with different rules in the plans (None: no rule), and the judgement after runs."""

    source: PlanRule | None
    derived: PlanRule | None
    judgement: str
    reason: str = ""

    @property
    def pattern(self) -> str:
        """The pattern of the layers."""
        rule = self.source or self.derived
        assert rule is not None
        return rule.pattern


def source_plan(derived: Derived) -> tuple[Plan, dict[str, str]]:
    """The plan that the library gathers from the source, and its entries with unknown styles."""
    entries = {key: style for key, style in gathered_plan(derived.small.model).items() if style != "replicate"}
    library = {name for name, style in STYLES.items() if style.library}
    unknown = {key: style for key, style in entries.items() if style not in library}
    known = {key: style for key, style in entries.items() if style in library}
    return from_library(derived.target.name, known), unknown


def outcome(derived: Derived, plan: Plan, ranks: int) -> Outcome:
    """Run a plan on ranks that are threads of this process."""
    try:
        found = cost(derived.trace, plan, resolve(plan, derived.small.model).pieces, ranks)
    except PlanError as error:
        return Outcome(str(error), 0, 0)
    verdict: Verdict = check_on_threads(derived.subject, plan, ranks)
    return Outcome(placed(verdict.layer, verdict.reason), found.rank, found.collectives)


def points(derived: Derived, source: Plan, ranks: int) -> Iterator[Point]:
    """Each difference, judged by runs: in the derived plan's order, then the lines that only the source has."""
    ours = {_key(rule): rule for rule in derived.plan.rules}
    theirs = {_key(rule): rule for rule in source.rules}
    differing = [key for key in (*ours, *theirs) if not _same(ours.get(key), theirs.get(key))]
    run = _remembering(derived, ranks)
    for key in dict.fromkeys(differing):
        judgement, reason = _judged(run, source, derived.plan, theirs.get(key), ours.get(key))
        yield Point(theirs.get(key), ours.get(key), judgement, reason)


def _key(rule: PlanRule) -> str:
    """The pattern; the same for a whole module and for its only weight."""
    return rule.pattern.removesuffix(".weight") if rule.style == "replicated_with_grad_allreduce" else rule.pattern


def _same(left: PlanRule | None, right: PlanRule | None) -> bool:
    if left is None or right is None:
        return False
    return replace(left, pattern=_key(left)) == replace(right, pattern=_key(right))


def _remembering(derived: Derived, ranks: int) -> Callable[[Plan], Outcome]:
    done: dict[Plan, Outcome] = {}

    def run(plan: Plan) -> Outcome:
        if plan not in done:
            done[plan] = outcome(derived, plan, ranks)
        return done[plan]

    return run


def _with(plan: Plan, old: PlanRule | None, new: PlanRule | None) -> Plan:
    """The plan with one line replaced, added or removed."""
    if old is None:
        assert new is not None
        return replace(plan, rules=(*plan.rules, new))
    changed = (new if rule == old else rule for rule in plan.rules)
    return replace(plan, rules=tuple(rule for rule in changed if rule is not None))


def _judged(
    run: Callable[[Plan], Outcome], source: Plan, derived: Plan, theirs: PlanRule | None, ours: PlanRule | None
) -> tuple[str, str]:
    before, changed = run(source), run(_with(source, theirs, ours))
    if not before.reason and not changed.reason:
        return (
            "a choice",
            f"the source's plan verifies either way: {_costs(before)} as it is, {_costs(changed)} with +",
        )
    if not changed.reason:
        return "wrong", f"the source's plan fails and verifies with this change: {before.reason}"
    back = run(_with(derived, ours, theirs))
    if not before.reason and back.reason:
        return "goes with other lines", f"it cannot change alone: {changed.reason}"
    if not before.reason:
        return "needed", f"the source's plan fails without it: {changed.reason}"
    if back.reason:
        return "wrong", f"the derived plan fails with the source's line: {back.reason}"
    best = run(derived)
    return "a choice", f"the derived plan verifies either way: {_costs(back)} with -, {_costs(best)} as it is"


def _costs(found: Outcome) -> str:
    return f"{found.bytes_rank} bytes a rank and {found.collectives} collectives"
