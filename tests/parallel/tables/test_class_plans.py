"""Plans in the classes of a model and its parts; plans with which transformers' loader is wrong."""

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.proof.prove import derive_model, prove  # noqa: E402
from modular_converter.parallel.tables.coverage import (  # noqa: E402
    have_row_here,
    plan_in_classes,
    types_in,
)
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


def test_the_plan_of_a_part_is_found_with_its_place():
    model = build(target_of("step3p7")).model
    plan = plan_in_classes(model)
    assert not model.config.base_model_tp_plan
    own = model.config.text_config.base_model_tp_plan
    assert plan and set(plan) <= {f"language_model.{pattern}" for pattern in own}
    assert types_in(model) == ["step3p5"] and have_row_here(["step3p5"], model)
    assert not have_row_here(["llama"], model), "the row of its own type shows it"


def test_rules_that_transformers_adds_are_left_out():
    model = build(target_of("llama")).model
    assert "embed_tokens" in model.tp_plan
    assert plan_in_classes(model) == model.config.base_model_tp_plan
    assert plan_in_classes(build(target_of("gpt2")).model) == {}


@pytest.mark.parametrize("name", ["hrm_text", "step3p7"])
def test_a_plan_with_which_the_loader_gives_other_numbers_is_refused(name, pool):
    derived = derive_model(target_of(name), ratios=False)
    verdict = prove(derived, derived.plan, pool, "committed")
    assert not verdict.passed
    assert "outputs through transformers' loader differ by" in verdict.reason
