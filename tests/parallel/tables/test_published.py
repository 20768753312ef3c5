"""A plan of a small instance at the default sizes of the model's classes."""

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.plans.plan import Plan  # noqa: E402
from modular_converter.parallel.tables.coverage import (  # noqa: E402  # noqa: E402
    holds_at,
    markdown,
    published,
    summary,
)
from modular_converter.parallel.tables.summary import amount  # noqa: E402
from modular_converter.parallel.tiny.build import target_of  # noqa: E402


def test_widths_vocabulary_and_experts_are_those_of_the_class():
    model = published(target_of("mixtral"))
    assert model.embed_tokens.weight.shape == (32000, 4096) and model.embed_tokens.weight.is_meta
    assert model.layers[0].mlp.experts.gate_up_proj.shape[0] == 8 and len(model.layers) == 2


def test_a_vocabulary_need_not_divide():
    text = "plan x\nrule embeddings.word_embeddings embedding_rowwise\n"
    assert holds_at(target_of("bert"), Plan.parse(text)) == {2: "", 3: "", 4: "", 8: ""}


def test_heads_that_are_too_few_stay_whole_and_are_named():
    """No attribute says how many heads there are: a view does."""
    attention = [f"rule encoder.layer.*.attention.self.{name} colwise" for name in ("query", "key", "value")]
    attention += ["rule encoder.layer.*.attention.output.dense rowwise"]
    rest = ["rule encoder.layer.*.intermediate.dense colwise", "rule encoder.layer.*.output.dense rowwise"]
    found = holds_at(target_of("electra"), Plan.parse("\n".join(["plan x", *attention, *rest])))
    assert found[2] == found[3] == found[4] == ""  # four heads
    assert found[8] == "whole: encoder.layer.*.attention.self, encoder.layer.*.attention.output"


def test_key_value_heads_may_be_fewer_than_ranks():
    rules = [f"rule layers.*.self_attn.{name}_proj colwise" for name in "qkv"]
    plan = Plan.parse("\n".join(["plan x", *rules, "rule layers.*.self_attn.o_proj rowwise"]))
    assert not any(holds_at(target_of("gemma2"), plan).values())  # 8 heads, 4 key/value heads of 256


def test_rules_for_layers_that_come_later_do_not_count():
    text = "plan x\nrule layers.*.mlp.experts.gate_up_proj colwise\nrule embed_tokens embedding_rowwise\n"
    assert not any(holds_at(target_of("deepseek_v3"), Plan.parse(text)).values())


def test_the_tables_say_it():
    row = {"name": "a", "folder": "", "model": "a", "state": "verified", "reason": "", "share": 1.0, "sharded": 1.0}
    row |= {"collectives": 1, "gathered": 0, "loader": "verified", "committed": None}
    row["holds_at"] = {"2": "", "4": "ApplyError: w: a block of length 6 does not divide over 4 ranks", "8": "x"}
    row["evidence"] = {"situations": ["padding"], "draws": 2}
    assert "| 2; 4: w: a block of length 6 does not divide over 4 ranks |" in markdown([row], "torch 2", "today")
    said = summary([row], "torch 2", "today")
    assert "At published sizes hold 1 on 2 devices, 0 on 4 devices, 0 on 8 devices. Proven on" in said
    assert said.endswith("Proven on 2 and 4 ranks, 1 of 1 with two draws of weights, 1 with padding.")


def test_parts_of_a_width_stay_with_it():
    model = published(target_of("reformer"))
    assert sum(model.config.axial_pos_embds_dim) == model.config.hidden_size == 256


@pytest.mark.parametrize(
    ("size", "said"), [(999, "999 B"), (1000, "1 kB"), (1_500_000, "1.5 MB"), (4 * 10**15, "4e+03 TB")]
)
def test_bytes_as_text(size, said):
    assert amount(size) == said
