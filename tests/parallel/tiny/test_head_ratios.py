"""Pairs of head counts under their many names, and the settings that give a small configuration another ratio."""

from types import SimpleNamespace

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.tiny.fields import (  # noqa: E402
    HeadPair,
    head_pairs,
    other_ratios,
    ratios_like,
    wider_heads,
)


def config(**values):
    return SimpleNamespace(**values)


@pytest.mark.parametrize(
    "heads, kv",
    [
        ("num_attention_heads", "num_key_value_heads"),
        ("n_heads", "kv_n_heads"),
        ("n_head", "n_head_kv"),
        ("num_attention_heads", "num_kv_heads"),
        ("num_attention_heads", "multi_query_group_num"),
        ("encoder_num_attention_heads", "encoder_num_key_value_heads"),
        ("num_attention_heads", "swa_num_key_value_heads"),
        ("num_attention_heads", "num_key_value_attention_heads"),
    ],
)
def test_pairs_by_name(heads, kv):
    assert list(head_pairs(config(**{heads: 8, kv: 4}))) == [HeadPair(kv, 8, 4)]


def test_what_is_no_pair():
    values = {"num_attention_heads": 8, "kv_lora_rank": 4, "d_kv": 8, "num_key_value_heads": [4, 8]}
    assert list(head_pairs(config(**values))) == []
    assert list(head_pairs(config(num_key_value_heads=4))) == []


def test_pairs_of_inner_configurations():
    from transformers import LlavaConfig

    text = {"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2}
    found = list(head_pairs(LlavaConfig(text_config=text)))
    assert found == [HeadPair("text_config.num_key_value_heads", 8, 2)]


def test_heads_of_the_configuration_around():
    from transformers import DbrxConfig

    assert HeadPair("attn_config.kv_n_heads", 8, 4) in head_pairs(DbrxConfig(n_heads=8, attn_config={"kv_n_heads": 4}))


@pytest.mark.parametrize("kv, kind", [(None, "plain"), (8, "plain"), (1, "single"), (2, "grouped"), (4, "grouped")])
def test_kinds(kv, kind):
    (pair,) = head_pairs(config(num_attention_heads=8, num_key_value_heads=kv))
    assert pair.kind == kind and HeadPair("x", 8, pair.of_kind(kind)).kind == kind


@pytest.mark.parametrize(
    "wanted, small, settings",
    [(4, 8, 4), (2, 8, 4), (1, 8, 1), (8, 8, None), (2, 4, None), (32, 4, 8), (1, 4, 1), (32, 1, 8), (None, 4, 8)],
)
def test_a_small_instance_gets_the_kind_of_the_real_ratio(wanted, small, settings):
    real = config(num_attention_heads=32, num_key_value_heads=wanted if wanted != 8 else 32)
    found = ratios_like(real, config(num_attention_heads=8, num_key_value_heads=small))
    assert found == ({} if settings is None else {"num_key_value_heads": settings})


def test_other_ratios():
    assert other_ratios(config(num_attention_heads=8, num_key_value_heads=8), []) == (
        {"num_key_value_heads": 4},
        "4 key/value heads of 8",
    )
    assert other_ratios(config(num_attention_heads=4, num_key_value_heads=2), [])[1] == "4 key/value heads of 4"
    for heads, kv, given in ((8, 1, []), (2, 2, []), (6, 6, []), (8, 4, ["num_key_value_heads"])):
        assert other_ratios(config(num_attention_heads=heads, num_key_value_heads=kv), given) == ({}, "")


def test_wider_heads():
    inner = {"num_attention_heads": 8, "num_key_value_heads": 4}
    assert wider_heads(config(**inner, hidden_size=64), []) == {"hidden_size": 128}
    assert wider_heads(config(**inner, hidden_size=64, head_dim=8), []) == {"head_dim": 16}
    assert wider_heads(config(**inner, hidden_size=64, head_dim=16), []) == {}
    assert wider_heads(config(**inner, hidden_size=64), ["hidden_size"]) == {}
