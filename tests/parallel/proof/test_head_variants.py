"""A plan that holds only for one ratio of key/value heads to heads is distinguished from one that holds for all."""

import dataclasses
from types import SimpleNamespace

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads, check_on_threads  # noqa: E402
from modular_converter.parallel.proof.prove import (  # noqa: E402  # noqa: E402
    _attempts,
    derive_model,
    head_variants,
    prove,
    refusal,
    restricted_to,
)
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from tests.parallel.ratios import real  # noqa: E402


WIDE = "4 key/value heads of 8 and heads twice as wide"
KV = "num_key_value_heads"
FUSED = """plan x
rule layers.*.a.qkv packed_colwise parts={}
rule layers.*.a.o rowwise
attribute layers.*.a:heads
attribute layers.*.a:groups
"""
# A third each, which holds without groups alone; and lengths that are right in the small instance by chance.
WRONG = ("1:1:1", "groups*groups:width*width:rest", "width*width:groups*width:rest")


def target(name):
    return target_of(f"tests.parallel.ratios.{name}")


def forms_of(name, **overrides):
    return head_variants(target(name), build(target(name), overrides), overrides)


def test_the_other_form_is_grouped_or_plain():
    (form,) = forms_of("TiledModel")
    assert form.ratio == WIDE and form.small.model.config.num_key_value_heads == 4
    (form,) = head_variants(target_of("gemma2"), build(target_of("gemma2")), {})
    assert form.ratio == "8 key/value heads of 8 and heads twice as wide"


def test_there_is_none_where_a_ratio_was_asked_for_or_makes_no_difference_or_does_not_run():
    assert forms_of("TiledModel", **{KV: 4}) == forms_of("UngroupedModel") == ()
    for name in ("bert", "falcon"):
        assert head_variants(target_of(name), build(target_of(name)), {}) == ()


def test_a_plan_of_one_ratio_gives_way_to_one_of_both():
    alone, found = derive_model(target("TiledModel"), ratios=False), derive_model(target("TiledModel"))
    assert alone.plan.rules != found.plan.rules and alone.verdict.passed and found.verdict.passed
    assert found.retreat.endswith(f"with {WIDE}") and not alone.retreat
    assert not refusal(found.variants, found.plan, 2)
    for groups in (8, 4, 2):
        model = real(type(found.small.model), groups)
        assert check_model_on_threads(model, found.plan, found.small.inputs, 2).passed
    assert not check_model_on_threads(real(type(found.small.model), 2), alone.plan, found.small.inputs, 2).passed


def test_a_plan_that_holds_for_one_ratio_alone_says_so(monkeypatch, caplog):
    from modular_converter.parallel.proof import prove as module

    kept = derive_model(target("TiledModel"), ratios=False).plan
    monkeypatch.setattr(module, "_attempts", lambda trace, failed: iter([kept]))
    found = derive_model(target("TiledModel"))
    assert found.plan == kept and found.verdict.passed
    assert found.retreat.startswith("holds for these heads alone: ")
    assert found.retreat in caplog.text


def test_wrong_given_plans_are_refused_with_the_ratio(pool):
    found = derive_model(target("FusedModel"))
    assert not found.retreat and found.verdict.passed and found.variants
    assert prove(found, found.plan, pool).passed
    assert prove(found, Plan.parse(str(found.plan)), pool).passed
    for parts in WRONG:
        plan = Plan.parse(FUSED.format(parts))
        assert check_on_threads(found.subject, plan, 2).passed
        verdict = prove(found, plan, pool)
        assert verdict.layer and verdict.reason.endswith(f"with {WIDE}")


def test_a_plan_of_few_collectives_is_held_to_both():
    assert restricted_to(derive_model(target("FusedModel")), 100).verdict.passed
    tiled = restricted_to(derive_model(target("TiledModel")), 100)
    assert tiled.verdict.reason.endswith(f"with {WIDE}")
    assert restricted_to(dataclasses.replace(tiled, variants=()), 100).verdict.passed


def test_layers_that_failed_stay_whole_without_gathers_too():
    found = derive_model(target_of("llama"))
    failed = [SimpleNamespace(layer="layers.0.mlp")]
    full, _, careful, without_gathers, _ = list(_attempts(found.trace, failed))
    first = [{rule.pattern for rule in plan.rules if ".0.mlp" in rule.pattern} for plan in (careful, without_gathers)]
    patterns = {rule.pattern for rule in careful.rules}
    assert full == without_gathers == found.plan and first == [set(), set()]
    assert patterns >= {"embed_tokens", "layers.*.self_attn.o_proj"} and "layers.*.mlp.down_proj" not in patterns
