"""A plan made to fit sizes that the number of ranks does not divide: whole heads for each rank, and whole what is too few."""

import logging

import pytest


pytest.importorskip("transformers")
from transformers import (  # noqa: E402  # noqa: E402
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from modular_converter.parallel.engine.base.skeleton import dismantle  # noqa: E402
from modular_converter.parallel.engine.choice.fit import fit  # noqa: E402
from modular_converter.parallel.engine.choice.kept import kept  # noqa: E402
from modular_converter.parallel.engine.choice.select_plan import select_plan  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.plans.units import Units  # noqa: E402
from modular_converter.parallel.shard.shares import share_lengths  # noqa: E402


ATTENTION = """rule model.layers.*.self_attn.q_proj colwise
rule model.layers.*.self_attn.k_proj colwise
rule model.layers.*.self_attn.v_proj colwise
rule model.layers.*.self_attn.o_proj rowwise
"""
MLP = """rule model.layers.*.mlp.gate_proj colwise
rule model.layers.*.mlp.up_proj colwise
rule model.layers.*.mlp.down_proj rowwise
"""


def llama(**settings):
    sizes = {"hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 1, "vocab_size": 61}
    return LlamaForCausalLM(LlamaConfig(**(sizes | settings)))


def fitted(model, plan, ranks):
    return fit(dismantle(model, lambda name, tensor: tensor.dtype)[0], plan, ranks)


def own(found, name, ranks):
    piece = found.pieces[name]
    return share_lengths(piece.length, piece.parts, ranks, piece.units)


def test_equal_shares_leave_a_plan_as_it_is():
    plan = Plan.parse(f"plan x\n{ATTENTION}{MLP}")
    found = fitted(llama(num_attention_heads=12, num_key_value_heads=4), plan, 4)
    assert found.plan == plan and not found.uneven and not found.whole


def test_a_rank_gets_whole_heads_in_their_ratio():
    plan = Plan.parse(f"plan x\n{ATTENTION}{MLP}")
    found = fitted(llama(num_attention_heads=12, num_key_value_heads=4, head_dim=8), plan, 3)
    assert own(found, "model.layers.0.self_attn.k_proj.weight", 3) == (16, 8, 8)
    assert own(found, "model.layers.0.self_attn.q_proj.weight", 3) == (48, 24, 24)
    assert own(found, "model.layers.0.mlp.up_proj.weight", 3) == (24, 24, 24)
    assert own(found, "model.layers.0.self_attn.q_proj.weight", 3) == own(
        found, "model.layers.0.self_attn.o_proj.weight", 3
    )
    assert "q_proj colwise units=4" in str(found.plan) and found.generic == plan


def test_widths_are_cut_at_multiples_that_products_want():
    plan = Plan.parse(f"plan x\n{MLP}")
    found = fitted(llama(num_attention_heads=4, head_dim=8), plan, 5)  # 72 entries are 9 times 8
    assert own(found, "model.layers.0.mlp.down_proj.weight", 5) == (16, 16, 16, 16, 8)


def test_interleaved_pairs_are_not_taken_apart():
    sizes = {"hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 1, "vocab_size": 61, "head_dim": 16}
    config = GptOssConfig(**sizes, num_attention_heads=8, num_key_value_heads=4, num_local_experts=4)
    rules = """rule model.layers.*.mlp.experts.gate_up_proj colwise dim=2
rule model.layers.*.mlp.experts.gate_up_proj_bias shard dim=1
rule model.layers.*.mlp.experts.down_proj rowwise dim=1
rule model.layers.*.mlp.experts moe_tp_experts
"""
    found = fitted(GptOssForCausalLM(config), Plan.parse(f"plan x\n{rules}"), 3)
    assert own(found, "model.layers.0.mlp.experts.gate_up_proj", 3) == (64, 64, 32)
    assert own(found, "model.layers.0.mlp.experts.down_proj", 3) == (32, 32, 16)


def test_integers_of_the_code_follow_the_heads():
    model = GPT2LMHeadModel(GPT2Config(n_embd=48, n_head=6, n_layer=2, vocab_size=97, n_positions=32))
    plan, origin = select_plan(model, None, 4)
    assert "attn.c_attn packed_colwise dim=1 parts=1:1:1 units=6" in str(plan)
    assert "unequal shares, verified on 3 ranks" in origin and "whole" not in origin.partition("unequal")[2]
    assert 0.25 < kept(model, plan, 4).share < 0.36


def test_ranks_share_out_the_query_heads_of_a_key_value_head():
    plan = Plan.parse(f"plan x\n{ATTENTION}{MLP}")
    model = llama(hidden_size=56, num_attention_heads=14, num_key_value_heads=2, head_dim=8)
    found = fitted(model, plan, 4)
    assert not found.whole
    assert own(found, "model.layers.0.self_attn.k_proj.weight", 4) == (8, 8, 8, 8)
    assert own(found, "model.layers.0.self_attn.o_proj.weight", 4) == (32, 24, 32, 24)
    starts = [Units(2, 1).own(rank, 4)[0] for rank in range(4)]
    assert starts == [0, 0, 1, 1] and [Units(2, 7).own(rank, 4) for rank in (1, 2)] == [(4, 3), (7, 4)]
    origin = select_plan(model, None, 4)[1]
    assert "unequal shares, verified on 6 ranks" in origin and "whole on each rank" not in origin


def test_too_few_heads_leave_their_attention_whole_alone(caplog):
    model = llama(num_attention_heads=4, num_key_value_heads=2)
    with caplog.at_level(logging.WARNING):
        plan, origin = select_plan(model, None, 3)
    assert not any("self_attn" in rule.pattern for rule in plan.rules)
    assert any("mlp" in rule.pattern for rule in plan.rules)
    assert "model.layers.*.self_attn stays whole on each of 3 ranks, 0.0 MB: " in caplog.text
    assert "2 do not reach for 3 ranks" in caplog.text and "whole on each rank: model.layers.*.self_attn" in origin


def test_an_error_remains_where_nothing_would_be_left():
    with pytest.raises(ApplyError, match="2 do not reach for 3 ranks.*nothing would be left to share out"):
        fitted(llama(num_attention_heads=4, num_key_value_heads=2), Plan.parse(f"plan x\n{ATTENTION}"), 3)


def test_an_axis_that_cannot_be_followed_is_not_cut_anywhere(monkeypatch):
    monkeypatch.setattr("modular_converter.parallel.engine.choice.fit._trace", lambda skeleton: None)
    plan = Plan.parse(f"plan x\n{MLP}rule lm_head colwise_gather_output\n")
    found = fitted(llama(num_attention_heads=4), plan, 5)
    assert list(found.whole) == ["model.layers.*.mlp"] and "cannot be followed" in found.whole["model.layers.*.mlp"]
    assert [rule.pattern for rule in found.plan.rules] == ["lm_head"]
