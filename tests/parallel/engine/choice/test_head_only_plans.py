"""Classes whose own plan shards the head alone get a derived plan, which leaves about half of the weights on a rank."""

import logging

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.engine.choice.kept import kept  # noqa: E402
from modular_converter.parallel.engine.choice.select_plan import committed_plan, select_plan  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.prove import derive_model  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


def small(path):
    return build(target_of(f"transformers.models.{path}"))


@pytest.mark.parametrize(
    "path", ["gpt_oss.modeling_gpt_oss.GptOssForCausalLM", "diffllama.modeling_diffllama.DiffLlamaForCausalLM"]
)
def test_the_derived_plan_is_chosen_and_the_shares_are_logged(path, caplog):
    model = small(path).model
    with caplog.at_level(logging.INFO, "modular_converter"):
        plan, said = select_plan(model, None, 2)
    assert said.startswith("the derived plan, verified on 2 ranks of a small instance")
    assert "the plan in its classes leaves 9" in said and "of the weights on each of 2 ranks" in said
    assert kept(model, plan, 2).share < 0.52
    assert "each of 2 ranks keeps 50." in caplog.text
    assert not [record for record in caplog.records if "keeps" in record.message and record.levelno > logging.INFO]


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("bamba.modeling_bamba.BambaForCausalLM", 0.6),
        ("falcon_h1.modeling_falcon_h1.FalconH1ForCausalLM", 0.56),
        ("qwen3_vl.modeling_qwen3_vl.Qwen3VLForConditionalGeneration", 0.62),
    ],
)
def test_what_the_two_plans_leave_on_a_rank(path, most):
    found = derive_model(target_of(f"transformers.models.{path}"), ratios=False)
    model = found.small.model
    own = committed_plan(model, found.target, {})
    assert found.verdict.passed and kept(model, found.plan, 2).share < most
    assert isinstance(own, Plan) and kept(model, own, 2).share > 0.94
