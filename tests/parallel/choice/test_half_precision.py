"""A model in half precision gets the plan of its small instance, which is in float32."""

import pytest
import torch


pytest.importorskip("transformers")
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from modular_converter.parallel.choice.select_plan import kept, select_plan  # noqa: E402


def test_conversions_between_types_make_no_other_kind_of_layer():
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "vocab_size": 96}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
    model = model.to(torch.bfloat16).eval()
    assert kept(model, select_plan(model, None, 2)[0], 2).share < 0.51
