"""A plan that fails is replaced by one that shards less and says so; no failing plan counts as proven."""

import dataclasses

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof import prove  # noqa: E402
from modular_converter.parallel.proof.judge import refused  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model, derived_from, leaves_around  # noqa: E402
from modular_converter.parallel.proof.subject import subject_of  # noqa: E402
from modular_converter.parallel.solve.follow import follow  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from modular_converter.parallel.trace.record import record  # noqa: E402


WRONG = Plan.parse(
    "plan x\nrule layers.*.up.weight shard dim=0\nrule layers.*.up.bias shard dim=0\nrule layers.*.down rowwise\n"
)
PAIRS = Plan.parse("plan x\nrule layers.*.up colwise\nrule layers.*.down rowwise\n")


def in_one_row():
    return target_of("tests.parallel.used_otherwise.InOneRow")


@pytest.fixture(scope="module")
def small():
    return build(in_one_row())


def patterns(plan):
    return {rule.pattern for rule in plan.rules}


def test_a_plan_that_fails_in_one_use_gives_way_to_one_that_holds_in_all():
    alone, found = derive_model(in_one_row()), derive_model(in_one_row(), uses=True)
    assert not alone.retreat and patterns(alone.plan) >= {"layers.*.up", "layers.*.down", "embed"}
    assert alone.verdict.passed and alone.verdict.evidence.uses == () and alone.known is None
    assert found.retreat.endswith("with one row") and found.verdict.passed
    assert {rule.style for rule in found.plan.rules if "layers" in rule.pattern} == {"colwise_gather_output"}
    assert "one row" in " ".join(found.verdict.evidence.uses)
    assert found.checked(alone.plan, 2).reason.endswith("with one row")
    assert found.checked(found.plan, 2).evidence.uses == found.verdict.evidence.uses


def test_a_plan_that_holds_nowhere_else_is_refused_in_its_use(monkeypatch):
    """There is no smaller plan: the words of the use that refuses are the verdict."""
    monkeypatch.setattr(prove, "_attempts", lambda trace, failed: iter([PAIRS]))
    monkeypatch.setattr(prove, "_plans_of", lambda variants, first, ranks: iter([Plan("x")]))
    monkeypatch.setattr(prove, "_without_layers", lambda flow, failed: iter([]))
    found = derive_model(in_one_row(), uses=True)
    assert found.plan == PAIRS and not found.verdict.passed
    assert found.verdict.reason.endswith("with one row") and found.retreat.endswith(found.verdict.reason)


@pytest.mark.parametrize("uses", [False, True])
def test_a_plan_that_fails_everywhere_stays_a_failure(monkeypatch, uses):
    monkeypatch.setattr(prove, "_attempts", lambda trace, failed: iter([WRONG]))
    monkeypatch.setattr(prove, "_plans_of", lambda variants, first, ranks: iter([WRONG]))
    monkeypatch.setattr(prove, "_without_layers", lambda flow, failed: iter([]))
    found = derive_model(in_one_row(), uses=uses)
    assert found.plan == WRONG and not found.verdict.passed and "gradient" in found.verdict.reason


def test_the_first_attempt_that_holds_is_taken_and_says_why_the_first_one_failed(monkeypatch, small):
    subject = subject_of(small.model, small.inputs)

    def derived(*plans):
        monkeypatch.setattr(prove, "_attempts", lambda trace, failed: iter(plans))
        return derived_from(in_one_row(), small, subject, 2, {"depth": 2})

    found = derived(WRONG, PAIRS, Plan("x"))
    assert found.plan == PAIRS and found.verdict.passed and found.overrides == (("depth", 2),)
    assert found.retreat.startswith("embed.weight: the gradient of embed.weight differs")
    assert derived(PAIRS, WRONG).retreat == "" and derived(PAIRS, WRONG).plan == PAIRS
    other = dataclasses.replace(WRONG, rules=WRONG.rules[:2])
    assert derived(WRONG, other).plan == WRONG and derived(WRONG, other).retreat == ""


def test_attempts_keep_more_layers_whole_until_none_is_named(small):
    """Then without gathers, and gathers alone."""
    trace = record(small.model, small.inputs, "x")
    plans = list(prove._attempts(trace, [refused(2, "layers.0.up.weight", "so")]))
    full, without, careful, pairs, gathers = plans
    assert patterns(full) >= patterns(PAIRS) and patterns(pairs) >= patterns(PAIRS)
    assert {rule.style for rule in full.rules if "layers" in rule.pattern} == {"colwise", "rowwise"}
    assert {rule.style for rule in without.rules if "layers" in rule.pattern} == {"colwise_gather_output"}
    assert {rule.style for rule in gathers.rules if "layers" in rule.pattern} == {"colwise_gather_output"}
    assert not any("layers" in pattern for pattern in patterns(careful))
    nothing = list(prove._attempts(trace, [refused(2, "nowhere", "so")]))
    assert nothing == [full, pairs, gathers]
    flow = follow(trace)
    around = leaves_around(flow, "layers.0.up")
    assert list(prove._without_layers(flow, [refused(2, "layers.0.up", "so")])) == [around]
    assert list(prove._without_layers(flow, [refused(2, "nowhere", "so")])) == []


def test_the_axes_around_a_layer_are_those_of_the_nearest_module_with_any(small):
    flow = follow(record(small.model, small.inputs, "x"))
    around = leaves_around(flow, "layers.0.up")
    assert around and leaves_around(flow, "layers.0.up.weight") == around == leaves_around(flow, "layers.0.down")
    assert leaves_around(flow, "layers.0.norm") == around == leaves_around(flow, "layers.0")
    assert leaves_around(flow, "layers") == around and leaves_around(flow, "norm") == frozenset() == leaves_around(
        flow, ""
    )
