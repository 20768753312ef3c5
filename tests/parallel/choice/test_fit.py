"""Plans fitted to sizes that the number of ranks does not divide: ranks get whole heads, and small parts stay whole."""

import logging

import pytest
import torch
from torch import nn


pytest.importorskip("transformers")
from transformers import (  # noqa: E402
    BertConfig,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
)

from modular_converter.parallel.choice import fit as fit_module  # noqa: E402
from modular_converter.parallel.choice import trials  # noqa: E402
from modular_converter.parallel.choice.fit import fit  # noqa: E402
from modular_converter.parallel.choice.select_plan import kept, select_plan  # noqa: E402
from modular_converter.parallel.choice.skeleton import skeleton_of  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.plans.resolve import Units  # noqa: E402
from modular_converter.parallel.proof.judge import Verdict  # noqa: E402
from modular_converter.parallel.proof.on_ranks import check_model_on_threads  # noqa: E402
from modular_converter.parallel.shard.shares import share_lengths, with_units  # noqa: E402
from modular_converter.parallel.tiny.build import randomise  # noqa: E402
from modular_converter.parallel.tiny.inputs import make_inputs  # noqa: E402
from modular_converter.parallel.trace.record import record  # noqa: E402


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
    return fit(skeleton_of(model), plan, ranks)


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


@pytest.mark.slow
def test_integers_of_the_code_follow_the_heads():
    model = GPT2LMHeadModel(GPT2Config(n_embd=48, n_head=6, n_layer=2, vocab_size=97, n_positions=32))
    plan, origin, _ = select_plan(model, None, 4)
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


@pytest.mark.slow
def test_too_few_heads_leave_their_attention_whole_alone(caplog):
    model = llama(num_attention_heads=2, num_key_value_heads=2)
    with caplog.at_level(logging.WARNING):
        plan, origin, _ = select_plan(model, None, 3)
    assert not any("self_attn" in rule.pattern for rule in plan.rules)
    assert any("mlp" in rule.pattern for rule in plan.rules)
    assert "model.layers.*.self_attn stays whole on each of 3 ranks, 0.0 MB: " in caplog.text
    assert (
        "2 units are too few for 3 ranks" in caplog.text and "whole on each rank: model.layers.*.self_attn" in origin
    )


def test_an_error_remains_where_nothing_would_be_left():
    with pytest.raises(ApplyError, match="2 units are too few for 3 ranks.*nothing would be left to shard"):
        fitted(llama(num_attention_heads=2, num_key_value_heads=2), Plan.parse(f"plan x\n{ATTENTION}"), 3)


@pytest.mark.parametrize(("most", "parts"), [(4, ""), (1, ""), (3, r" with model\.layers\.\*\.mlp whole")])
def test_unequal_shares_that_a_small_instance_refuses_everywhere_are_an_error(monkeypatch, most, parts):
    places = iter(["model.layers.0.mlp", "model.layers.0.self_attn", ""] if parts else [""])
    verdicts = {
        "_verdict": lambda *_: Verdict(4, 1.0, 0.0, next(places), "output 0 differs"),
        "_MOST_WRONG_PARTS": most,
    }
    for name, one in verdicts.items():
        monkeypatch.setattr(fit_module, name, one)
    model, plan = llama(num_attention_heads=6, num_key_value_heads=6), Plan.parse(f"plan x\n{ATTENTION}{MLP}")
    with pytest.raises(ApplyError, match=rf"num_gpus=4 does not fit this model{parts}: a small .*output 0 differs"):
        fit_module.fitted(model, plan, "", 4, 4, False)


@pytest.mark.slow
def test_the_bias_of_a_head_that_has_another_name_first_is_cut_with_the_head():
    with torch.device("meta"):
        model = BertLMHeadModel(BertConfig(vocab_size=30522, num_hidden_layers=1, is_decoder=True))
    assert "cls.predictions.bias" in dict(model.named_parameters())
    plan, *_ = select_plan(model, None, 2)
    for size in (4, 7, 8):
        found = fit(skeleton_of(model), plan, size)
        assert not found.whole and found.pieces["cls.predictions.bias"].dim == 0


def test_an_axis_that_cannot_be_followed_is_not_cut_anywhere(monkeypatch):
    monkeypatch.setattr("modular_converter.parallel.choice.fit._trace", lambda skeleton, given: None)
    plan = Plan.parse(f"plan x\n{MLP}rule lm_head colwise_gather_output\n")
    found = fitted(llama(num_attention_heads=4), plan, 5)
    assert list(found.whole) == ["model.layers.*.mlp"] and "cannot be followed" in found.whole["model.layers.*.mlp"]
    assert [rule.pattern for rule in found.plan.rules] == ["lm_head"]


@pytest.mark.parametrize("heads, groups, ranks", [(9, 3, 4), (9, 3, 8), (4, 2, 3), (16, 4, 6)])
def test_copies_where_a_group_has_as_many_heads_as_there_are_groups(heads, groups, ranks):
    """Lengths do not tell which of both factors of an axis is outermost; the trace does."""
    model = llama(hidden_size=heads * 4, num_attention_heads=heads, num_key_value_heads=groups).eval()
    found = fitted(model, Plan.parse(f"plan x\n{ATTENTION}"), ranks)
    assert not found.whole and found.pieces["model.layers.0.self_attn.k_proj.weight"].units == Units(groups, 1)
    assert own(found, "model.layers.0.self_attn.q_proj.weight", ranks)[0] // 4 == -(-groups // -(-ranks // groups))
    randomise(model)
    assert check_model_on_threads(model, found.plan, make_inputs(model), ranks).passed


class Tiled(nn.Module):
    """Key/value heads are repeated as a whole: query head n has key/value head n % 3."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(36, width, bias=False) for width in (36, 12, 12, 36))

    def forward(self, x):
        rows, length = x.shape[:2]
        q = self.q(x).view(rows, length, 9, 4).transpose(1, 2)
        k, v = (one(x).view(rows, length, 3, 4).transpose(1, 2).repeat(1, 3, 1, 1) for one in (self.k, self.v))
        found = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.o(found.transpose(1, 2).reshape(rows, length, 36))


def test_no_copies_where_the_other_factor_is_outermost():
    model, inputs = Tiled().eval(), {"x": torch.randn(2, 5, 36)}
    plan = Plan.parse("plan x\nrule q colwise\nrule k colwise\nrule v colwise\nrule o rowwise\n")
    made = with_units(plan, model, record(model, inputs), 4)
    assert not any(rule.members for rule in made.rules)


@pytest.mark.parametrize("width, ranks", [(32, 3), (24, 2)])
def test_stacked_experts_whose_shares_grouped_products_refuse_stay_whole(width, ranks):
    """They want rows of 16 bytes."""
    sizes = {"hidden_size": 48, "num_hidden_layers": 1, "vocab_size": 61, "num_local_experts": 4}
    heads = {"num_attention_heads": 6, "num_key_value_heads": 6}
    model = MixtralForCausalLM(MixtralConfig(**sizes, **heads, intermediate_size=width)).to(torch.bfloat16)
    rules = ("gate_up_proj packed_colwise parts=1:1", "down_proj rowwise")
    experts = "".join(f"rule model.layers.*.mlp.experts.{rule}\n" for rule in rules)
    plan = Plan.parse(f"plan x\n{ATTENTION}{experts}rule model.layers.*.mlp.experts moe_tp_experts\n")
    found = fitted(model, plan, ranks)
    assert list(found.whole) == ["model.layers.*.mlp.experts"]
    assert "16 bytes" in found.whole["model.layers.*.mlp.experts"]


def test_inputs_without_data_are_made_once(monkeypatch):
    """And looked for once where there are none, such as images of a size that no layout fits."""
    calls = []

    def counted(model, run):
        calls.append(model)
        return {"x": torch.randn(2, 3)} if len(calls) == 1 else next(iter(()))

    monkeypatch.setattr(trials, "inputs_that_run", counted)
    torch.manual_seed(0)
    first, second = (skeleton_of(torch.nn.Linear(3, width)) for width in (1931, 1933))
    assert [trials.inputs_without_data(first, None)["x"].device.type for _ in range(3)] == ["meta"] * 3
    for _ in range(3):
        with pytest.raises(ApplyError, match="no inputs are known: StopIteration"):
            trials.inputs_without_data(second, None)
    assert len(calls) == 2
