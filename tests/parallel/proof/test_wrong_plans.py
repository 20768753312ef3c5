"""Wrong plans of models whose numbers hide the mistake are refused; the right plans of the same models pass."""

import pytest

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads, check_on_threads
from modular_converter.parallel.proof.prove import derive_model
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.build import Target, build
from tests.parallel.deceptive import PLANS, CodesModel, DeceptiveConfig, DrownedModel, NanGradModel


def small(kind):
    return build(target(kind))


def target(kind):
    return Target(kind.__name__, *(f"{one.__module__}.{one.__qualname__}" for one in (kind, DeceptiveConfig)))


def plan(kind, rules):
    return Plan.parse(f"plan {kind.__name__}\n{rules}")


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("kind", PLANS, ids=lambda kind: kind.__name__)
def test_the_right_plan_passes_and_the_wrong_one_is_refused(kind, ranks):
    found = small(kind)
    subject = subject_of(found.model, found.inputs)
    right, wrong = (plan(kind, rules) for rules in PLANS[kind])
    verdict = check_on_threads(subject, right, ranks)
    assert verdict.passed, verdict.reason
    verdict = check_on_threads(subject, wrong, ranks)
    assert not verdict.passed and "differs by" in verdict.reason


@pytest.mark.parametrize("kind", PLANS, ids=lambda kind: kind.__name__)
def test_the_derived_plan_passes(kind):
    derived = derive_model(target(kind))
    assert derived.verdict.passed and derived.plan.rules and not derived.retreat


def test_the_layer_is_named():
    assert refused(CodesModel).reason.startswith("output 1 differs by inf")
    assert refused(DrownedModel).layer in ("norm.weight", "side_norm.weight", "side_norm.bias", "embed.weight")


def test_gradients_that_are_not_finite_are_taken_further_back_and_that_is_said():
    found = small(NanGradModel)
    verdict = check_model_on_threads(found.model, plan(NanGradModel, PLANS[NanGradModel][0]), found.inputs, 2)
    assert verdict.passed and verdict.evidence.gaps == ("gradients of what follows norm: they are not finite",)


def refused(kind):
    found = small(kind)
    return check_model_on_threads(found.model, plan(kind, PLANS[kind][1]), found.inputs, 2)
