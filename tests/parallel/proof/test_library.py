"""Plans through transformers' own loader: outputs, and gradients of the parameters."""

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model, prove  # noqa: E402
from modular_converter.parallel.tiny.build import target_of  # noqa: E402


@pytest.fixture(scope="module")
def qwen3():
    return derive_model(target_of("qwen3"))


def test_norms_of_heads_are_named_by_their_module_which_the_loader_acts_on(qwen3, pool):
    rules = {rule.pattern: rule.style for rule in qwen3.plan.rules}
    assert rules["layers.*.self_attn.q_norm"] == rules["layers.*.self_attn.k_norm"] == "replicated_with_grad_allreduce"
    verdict = prove(qwen3, qwen3.plan, pool, "library")
    assert verdict.passed and verdict.evidence.places == ("transformers' loader",)
    assert 0 < verdict.gradient_error < 1e-3


def test_a_gradient_that_the_loader_does_not_sum_is_refused(qwen3, pool):
    text = str(qwen3.plan).replace("q_norm replicated", "q_norm.weight replicated")
    verdict = prove(qwen3, Plan.parse(text), pool, "library")
    assert verdict.layer.endswith("q_norm.weight") and "through transformers' loader differs by" in verdict.reason


def test_the_plan_in_the_classes_runs_there(qwen3, pool):
    assert prove(qwen3, qwen3.plan, pool, "committed").passed
