"""Two plans of one model: each differing line is run in the other plan, and failures are told from choices."""

import dataclasses

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan, PlanRule  # noqa: E402
from modular_converter.parallel.proof import compare_plans  # noqa: E402
from modular_converter.parallel.proof.compare_plans import Point, outcome, points, source_plan  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.tiny.build import target_of  # noqa: E402


@pytest.fixture(scope="module")
def derived():
    return derive_model(target_of("qwen3"), {"num_hidden_layers": 1}, ratios=False)


def changed(plan, pattern, *rules):
    """A plan with other rules in the place of one."""
    return Plan(
        plan.model, tuple(new for rule in plan.rules for new in (rules if rule.pattern == pattern else (rule,)))
    )


def test_the_plan_of_the_source_leaves_out_what_is_whole_and_what_is_not_modelled(derived, monkeypatch):
    found, unknown = source_plan(derived)
    assert unknown == {} and {rule.pattern for rule in found.rules} >= {
        "layers.*.mlp.up_proj",
        "layers.*.self_attn.o_proj",
    }
    entries = {"layers.*.mlp.up_proj": "colwise", "norm": "replicate", "a": "sideways", "b": "enter_output"}
    monkeypatch.setattr(compare_plans, "gathered_plan", lambda model: entries)
    found, unknown = source_plan(derived)
    assert found.rules == (PlanRule("layers.*.mlp.up_proj", "colwise"),) and found.model == derived.target.name
    assert unknown == {"a": "sideways", "b": "enter_output"}


def test_a_run_gives_the_cost_or_the_reason(derived):
    found = outcome(derived, derived.plan, 2)
    nothing = outcome(derived, Plan("x"), 2)
    assert found.reason == nothing.reason == "" and found.bytes_rank < nothing.bytes_rank
    assert found.collectives == derived.verdict.collectives > nothing.collectives == 0
    wrong = outcome(derived, changed(derived.plan, "layers.*.mlp.down_proj"), 2)
    assert wrong.reason.startswith("layers.0.mlp") and ": " in wrong.reason and wrong.bytes_rank > found.bytes_rank
    gone = outcome(derived, Plan.parse("plan x\nrule gone colwise\n"), 2)
    assert gone == compare_plans.Outcome("gone: matches no module and no parameter of the model", 0, 0)


def test_each_difference_is_run_and_judged(derived):
    """In the order of the derived plan; what the source has alone comes last."""
    norm, embed, rows = "layers.*.self_attn.q_norm", "embed_tokens", "layers.*.mlp.down_proj"
    whole = {rule.pattern: rule for rule in derived.plan.rules}
    source = changed(changed(derived.plan, norm, PlanRule(f"{norm}.weight", whole[norm].style)), embed)
    assert [point.pattern for point in points(derived, source, 2)] == [embed], "a norm may be named by its weight"
    (point,) = points(derived, source, 2)
    assert (point.source, point.derived, point.judgement) == (None, whole[embed], "a choice")
    assert "the source's plan verifies either way" in point.reason
    broken = changed(source, rows, PlanRule(rows, "rowwise_split_input"))
    extra = dataclasses.replace(broken, rules=(*broken.rules, PlanRule("norm", "replicated_with_grad_allreduce")))
    found = list(points(derived, extra, 2))
    assert [one.pattern for one in found] == [embed, rows, "norm"]
    assert found[1].source == PlanRule(rows, "rowwise_split_input") and found[1].judgement == "wrong"
    assert found[2].derived is None and found[2].judgement == "wrong"
    assert list(points(derived, derived.plan, 2)) == []


def test_plans_are_run_once(derived, monkeypatch):
    ran = []
    monkeypatch.setattr(
        compare_plans, "outcome", lambda derived, plan, ranks: ran.append(plan) or compare_plans.Outcome("", 1, 2)
    )
    found = list(points(derived, changed(changed(derived.plan, "embed_tokens"), "layers.*.mlp.down_proj"), 2))
    assert [point.judgement for point in found] == ["a choice"] * 2 and len(ran) == len(set(ran)) == 3


def test_the_pattern_of_a_point_is_that_of_either_line():
    rule = PlanRule("a", "colwise")
    assert Point(rule, None, "").pattern == Point(None, rule, "").pattern == "a"
