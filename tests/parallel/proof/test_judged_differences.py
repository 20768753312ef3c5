"""The judgement on a line in which two plans differ, from whether each plan holds with the line of the other."""

import pytest

from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.proof.compare_plans import Outcome, _judged, _same, _with


OURS, THEIRS, SHARED = PlanRule("a", "colwise"), PlanRule("a", "rowwise"), PlanRule("b", "colwise")
SOURCE, DERIVED = Plan("x", (SHARED, THEIRS)), Plan("x", (SHARED, OURS))


def judged(source, source_with_ours, derived_with_theirs, theirs=THEIRS, ours=OURS):
    """Each argument: whether that plan fails."""
    said = {"": (10, 1), "fails": (0, 0)}
    source_plan = Plan("x", tuple(filter(None, (SHARED, theirs))))
    derived_plan = Plan("x", tuple(filter(None, (SHARED, ours))))
    # The two plans differ in one line alone, so that each with the other's line is the other one; runs tell them apart.
    order = [source, source_with_ours, derived_with_theirs, False]
    runs = iter(Outcome("it fails" if fails else "", *said["fails" if fails else ""]) for fails in order)
    return _judged(lambda plan: next(runs), source_plan, derived_plan, theirs, ours)


@pytest.mark.parametrize(
    "fails, judgement, reason",
    [
        ((False, False, False), "a choice", "the source's plan verifies either way: 10 bytes a rank and 1 collectives as it is"),
        ((True, False, False), "wrong", "the source's plan fails and verifies with this change: it fails"),
        ((False, True, True), "goes with other lines", "it cannot change alone: it fails"),
        ((False, True, False), "needed", "the source's plan fails without it: it fails"),
        ((True, True, True), "wrong", "the derived plan fails with the source's line: it fails"),
        ((True, True, False), "a choice", "the derived plan verifies either way: 10 bytes a rank and 1 collectives with -"),
    ],
)  # fmt: skip
def test_a_difference_is_judged_by_which_plans_hold(fails, judgement, reason):
    found = judged(*fails)
    assert found[0] == judgement and found[1].startswith(reason)


def test_a_line_is_replaced_added_or_removed():
    assert _with(SOURCE, THEIRS, OURS) == DERIVED
    assert _with(Plan("x", (SHARED,)), None, OURS) == DERIVED
    assert _with(SOURCE, THEIRS, None) == Plan("x", (SHARED,))


def test_a_layer_may_be_named_by_its_one_weight():
    summed = "replicated_with_grad_allreduce"
    assert _same(PlanRule("norm", summed), PlanRule("norm.weight", summed))
    assert not _same(PlanRule("up", "colwise"), PlanRule("up.weight", "colwise"))
    assert not _same(PlanRule("norm", summed), PlanRule("norm", "colwise")) and not _same(None, SHARED)
