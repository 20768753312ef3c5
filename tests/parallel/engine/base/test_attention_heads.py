"""Numbers of query heads in a configuration, by which a share of them is told."""

import pytest


transformers = pytest.importorskip("transformers")
from modular_converter.parallel.engine.base.attention_heads import _query_heads  # noqa: E402


def test_numbers_of_query_heads_are_those_of_all_configurations_inside():
    config = transformers.LlamaConfig(num_attention_heads=6, num_key_value_heads=3, head_dim=4, hidden_size=24)
    assert _query_heads(config) == {6}
    assert _query_heads(transformers.GPT2Config(n_head=4)) == {4}
    vision = transformers.CLIPVisionConfig(num_attention_heads=7, hidden_size=28)
    both = transformers.CLIPConfig(vision_config=vision.to_dict(), text_config={"num_attention_heads": 8})
    assert _query_heads(both) == {7, 8}
    config.attention_heads_of_layers = [2, 9, True]
    assert _query_heads(config) == {6, 2, 9} and _query_heads(None) == set()
