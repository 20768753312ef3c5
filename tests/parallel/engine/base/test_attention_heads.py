"""Numbers of query heads in a configuration, by which a share of them is told."""

import gc
import inspect
import weakref

import pytest
import torch
from torch.utils.weak import WeakIdKeyDictionary


transformers = pytest.importorskip("transformers")
from modular_converter.parallel.engine.base.attention_heads import (  # noqa: E402
    HeadCounts,
    WholeAttentions,
    _query_heads,
    whole_heads,
)
from modular_converter.parallel.shard.collectives import FakeGroup  # noqa: E402


def test_numbers_of_query_heads_are_those_of_all_configurations_inside():
    config = transformers.LlamaConfig(num_attention_heads=6, num_key_value_heads=3, head_dim=4, hidden_size=24)
    assert _query_heads(config) == {6}
    assert _query_heads(transformers.GPT2Config(n_head=4)) == {4}
    vision = transformers.CLIPVisionConfig(num_attention_heads=7, hidden_size=28)
    both = transformers.CLIPConfig(vision_config=vision.to_dict(), text_config={"num_attention_heads": 8})
    assert _query_heads(both) == {7, 8}
    config.attention_heads_of_layers = [2, 9, True]
    assert _query_heads(config) == {6, 2, 9} and _query_heads(None) == set()


@pytest.mark.parametrize("only_inside", [False, True])
def test_modules_that_return_all_heads_keep_no_model_that_is_gone(only_inside):
    config = transformers.LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=16
    )
    model = transformers.LlamaForCausalLM(config)
    signature, inner, weight = inspect.signature(model.model.forward), model.model, weakref.ref(model.lm_head)
    made = WholeAttentions(model, {}, FakeGroup(2), only_inside)
    assert ("forward" in vars(model), "forward" in vars(inner)) == (not only_inside, True)
    assert inspect.signature(inner.forward) == signature
    made.detach()
    assert "forward" not in vars(inner)
    made = WholeAttentions(model, {}, FakeGroup(2), only_inside)
    gc.disable()
    try:
        del model, inner
        assert weight() is None and made.model() is None
    finally:
        gc.enable()


def test_shares_of_attention_weights_become_those_of_all_heads():
    config = transformers.LlamaConfig(num_attention_heads=4, hidden_size=8)
    model, share = torch.nn.Identity(), torch.rand(1, 2, 3, 3)
    model.config = config
    owners, other = WeakIdKeyDictionary({share: True}), torch.rand(1, 2, 3, 3)
    result = transformers.utils.ModelOutput(logits=other, attentions=(share, share), hidden_states=(other, [other]))
    states = result.hidden_states
    counts = HeadCounts(FakeGroup(2), False)
    found = whole_heads(result, model, counts, owners, lambda value, own: torch.cat([value] * len(own), 1))
    first, second = found.attentions
    assert first is second and torch.equal(first, torch.cat([share, share], 1))
    assert found.logits is other and found.hidden_states is states
