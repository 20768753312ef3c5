"""The plan that is selected for a model, and the messages about the other plans."""

import logging

import pytest
import torch

from modular_converter.parallel.choice.select_plan import given_plan, kept, select_plan
from modular_converter.parallel.choice.small_instances import small_overrides, small_settings
from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads, check_on_threads
from modular_converter.parallel.proof.prove import derive_model
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.build import build, target_of
from tests.parallel.ratios import FusedModel, TiledModel, UngroupedModel, real


def llama():
    return build(target_of("llama")).model


def deepseek(**settings):
    from transformers import DeepseekV2Config, DeepseekV2Model

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 4, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16}
    sizes |= {"v_head_dim": 16, "vocab_size": 64, "n_routed_experts": 8, "moe_intermediate_size": 32, "topk_group": 1}
    return DeepseekV2Model(DeepseekV2Config(**sizes, n_group=1, head_dim=8, num_experts_per_tok=2, **settings))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [None, pytest.param(24, marks=pytest.mark.slow)])
def test_a_part_that_is_left_out_is_left_out_of_the_small_instance(rank):
    plan, where, _ = select_plan(deepseek(q_lora_rank=rank), None, 2)
    patterns = {rule.pattern for rule in plan.rules}
    assert any("q_a_proj" in p or "q_b_proj" in p for p in patterns) == (rank is not None)
    assert "verified on 2 ranks" in where and "its classes have no plan" not in where


def test_switches_of_inner_configurations_are_carried():
    from transformers import CLIPConfig

    config = CLIPConfig(text_config={"hidden_act": "gelu"}, vision_config={"hidden_size": 96})
    assert small_overrides(config) == {"text_config.hidden_act": "gelu"}


@pytest.mark.parametrize("shared", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_switches_that_a_configuration_does_not_declare_are_carried(shared):
    """As published for DeBERTa v3, whose configuration class has no field ``share_att_key``."""
    from transformers import DebertaV2Config, DebertaV2Model

    sizes = {"hidden_size": 96, "intermediate_size": 192, "vocab_size": 200, "num_hidden_layers": 2}
    sizes["max_position_embeddings"] = 64
    switches = {"relative_attention": True, "position_buckets": 16, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0}
    own = {"share_att_key": shared, "pos_att_type": ["p2c", "c2p"], "is_of_another_program": True}
    model = DebertaV2Model(DebertaV2Config(num_attention_heads=4, **sizes, **switches, **own)).eval()
    settings = small_settings(model)
    assert settings["share_att_key"] is shared and "is_of_another_program" not in settings
    plan, *_ = select_plan(model, None, 2)
    names = {rule.pattern.rpartition(".")[2]: rule.style for rule in plan.rules}
    assert names["query_proj"] == names["key_proj"] == "colwise" and names["dense"] == "rowwise"
    assert ("pos_key_proj" in names) is not shared
    tokens = {"input_ids": torch.randint(5, 80, (2, 9)), "attention_mask": torch.ones(2, 9, dtype=torch.long)}
    assert kept(model, plan, 2).share < 0.58
    assert check_model_on_threads(model, plan, tokens, 2).passed


def test_token_ids_are_no_arithmetic():
    from transformers import LlamaConfig

    assert small_overrides(LlamaConfig(bos_token_id=None, pad_token_id=7, attention_bias=True)) == {
        "attention_bias": True
    }


@pytest.mark.parametrize("tied", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("row", [100, pytest.param(3, marks=pytest.mark.slow)])
def test_a_table_with_a_row_without_gradient_is_shared_out(row, tied):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 160, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    config = LlamaConfig(
        **sizes, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=tied, pad_token_id=row
    )
    model, ids = LlamaForCausalLM(config), torch.tensor([[row, 1, 2, row, 99, 101]])
    plan, *_ = select_plan(model, None, 2)
    assert "model.embed_tokens" in [rule.pattern for rule in plan.rules]
    subject = subject_of(model, {"input_ids": ids, "labels": ids.clone(), "use_cache": False}, second=False)
    assert check_on_threads(subject, plan, 2).passed


@pytest.mark.parametrize("row", [0, pytest.param(None, marks=pytest.mark.slow)])
def test_a_table_without_the_padding_row_of_its_small_instance_is_shared_out(row):
    from transformers import Phi3Config, Phi3ForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 16}
    with torch.device("meta"):
        model = Phi3ForCausalLM(Phi3Config(**sizes, num_hidden_layers=2, vocab_size=32064, pad_token_id=row))
    plan, *_ = select_plan(model, None, 2)
    assert "model.embed_tokens" in [rule.pattern for rule in plan.rules]


def test_a_given_plan_is_tried_and_a_wrong_one_warned_of(caplog):
    right = "plan x\nrule layers.*.mlp.gate_proj colwise\nrule layers.*.mlp.up_proj colwise\nrule layers.*.mlp.down_proj rowwise\n"
    said = select_plan(llama(), right, 2)[1]
    assert said.startswith("the given plan, verified on 2 ranks of a small instance (run: 2 draws of weights; ")
    wrong = "plan x\nrule layers.*.mlp.down_proj rowwise_split_input\nrule layers.*.self_attn.o_proj all_reduce\n"
    with caplog.at_level(logging.WARNING, "modular_converter"):
        plan, where, _ = select_plan(llama(), wrong, 2)
    assert len(plan.rules) == 2 and "which a small instance refuses" in where
    assert "refused by a small instance of the model" in caplog.text


@pytest.mark.slow
def test_integers_that_shrink_are_part_of_a_given_plan():
    found = derive_model(target_of("t5"))
    assert found.plan.attributes
    assert "verified on 2 ranks" in select_plan(found.small.model, found.plan, 2)[1]


@pytest.mark.parametrize(
    "groups, kept", [(2, 4), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((8, None), (4, 4), (1, 1)))]
)
def test_the_plan_is_derived_and_proven_with_the_models_own_ratio_of_heads(groups, kept):
    model = real(TiledModel, groups)
    plan, where, _ = select_plan(model, None, 2)
    assert small_settings(model) == ({} if kept is None else {"num_key_value_heads": kept})
    assert "the derived plan, verified on 2 ranks" in where
    assert check_model_on_threads(model, plan, {"input_ids": torch.arange(24).view(2, 12)}, 2).passed


def test_a_given_plan_is_tried_with_the_models_own_ratio_of_heads():
    text = "plan x\nrule layers.*.a.qkv packed_colwise parts={}\nrule layers.*.a.o rowwise\n"
    text += "attribute layers.*.a:heads\nattribute layers.*.a:groups\n"
    for groups, parts, said in (
        (8, "1:1:1", "verified on 2 ranks"),
        (2, "1:1:1", "which a small instance refuses"),
        (2, "heads*width:groups*width:groups*width", "verified on 2 ranks"),
        (8, "groups*groups:width*width:rest", "which a small instance refuses"),
    ):
        assert said in select_plan(real(FusedModel, groups), text.format(parts), 2)[1]


def test_a_ratio_that_no_small_instance_can_have_is_warned_of(caplog):
    with caplog.at_level(logging.WARNING, "modular_converter"):
        assert small_settings(real(UngroupedModel, 2)) == {}
    assert "another ratio of heads" in caplog.text


def test_a_plan_for_a_model_of_ones_own_is_taken_unverified():
    assert "not verified" in select_plan(torch.nn.Linear(4, 4), "plan x\nrule weight shard\n", 2)[1]


@pytest.mark.parametrize("given", [5, b"plan x", ["colwise"]])
def test_what_is_no_plan_is_named(given):
    with pytest.raises(PlanFormatError, match="a plan is a Plan, a table of styles, a file or its text"):
        given_plan(given, "x")


def test_the_forms_of_a_given_plan(tmp_path):
    plan = Plan.parse("plan x\nrule a colwise\n")
    (tmp_path / "plan.json").write_text(plan.to_json())
    (tmp_path / "plan.txt").write_text(str(plan))
    for form in (
        plan,
        {"a": "colwise"},
        str(plan),
        plan.to_json(),
        str(tmp_path / "plan.json"),
        tmp_path / "plan.txt",
    ):
        assert given_plan(form, "x") == plan
    with pytest.raises(PlanFormatError, match="none.txt: it cannot be read"):
        given_plan(str(tmp_path / "none.txt"), "x")


def test_weights_that_stay_whole_are_named_where_a_rank_keeps_most(caplog):
    with caplog.at_level(logging.WARNING, "modular_converter"):
        select_plan(llama(), "plan x\nrule layers.*.mlp.gate_proj colwise_gather_output\n", 2)
    assert "of the weights; whole: " in caplog.text and "(no rule of the plan)" in caplog.text
