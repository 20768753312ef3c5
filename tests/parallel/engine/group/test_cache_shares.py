"""Caches of a process's own heads: code outside of the model may choose sequences and positions, and no heads."""

import copy
import io
from types import SimpleNamespace

import pytest
import torch


transformers = pytest.importorskip("transformers")
from modular_converter.parallel.engine.group.share_tensors import CacheShare, CacheShares  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402


def shares(heads=4):
    return CacheShares(SimpleNamespace(config=transformers.LlamaConfig(num_key_value_heads=heads)))


def filled():
    """A cache of 2 heads, of 3 sequences of 5 tokens."""
    torch.manual_seed(0)
    cache = transformers.DynamicCache()
    for number in range(2):
        cache.update(torch.randn(3, 2, 5, 4), torch.randn(3, 2, 5, 4), number)
    return cache


def shown(cache):
    return shares().show({"logits": torch.ones(1), "past_key_values": cache}, [])["past_key_values"]


def test_tensors_of_a_cache_are_shares_between_calls():
    cache, own = filled(), shares()
    keys = cache.layers[0].keys
    own.show((torch.ones(1), cache), [])
    assert type(keys) is not torch.Tensor and isinstance(keys, CacheShare) and keys.shape == (3, 2, 5, 4)
    given = own.hide(((), {"past_key_values": cache}))
    assert given == [cache] and type(keys) is torch.Tensor
    own.show(torch.ones(1), given)
    assert isinstance(keys, CacheShare)


def test_those_with_all_heads_are_whole():
    cache = filled()
    assert shares(2).show(cache, []) is cache and type(cache.layers[0].keys) is torch.Tensor
    both = transformers.DynamicCache()
    for number, heads in enumerate((2, 4)):
        both.update(torch.ones(1, heads, 5, 4), torch.ones(1, heads, 5, 4), number)
    shares().show(both, [])
    assert [type(one.keys) is torch.Tensor for one in both.layers] == [False, True]


@pytest.mark.parametrize(
    "code",
    [
        lambda keys: keys[:, 1],
        lambda keys: keys[:, :1],
        lambda keys: keys[0],
        lambda keys: keys[..., 1:, :, :],
        lambda keys: keys[None],
        lambda keys: keys[keys > 0],
        lambda keys: keys.__setitem__((slice(None), 1), 0.0),
        lambda keys: keys[:, torch.tensor([0])],
        lambda keys: keys.sum(),
        lambda keys: keys.norm(),
        lambda keys: keys.mean(1),
        lambda keys: keys.sum(dim=0),
        lambda keys: keys.flip(1),
        lambda keys: keys.transpose(1, 2),
        lambda keys: keys.index_select(1, torch.tensor([0])),
        lambda keys: keys.select(-3, 0),
        lambda keys: torch.cat([keys, keys], 1),
        lambda keys: keys.reshape(3, -1),
        lambda keys: keys.numpy(),
    ],
)
def test_what_would_choose_or_mix_heads_is_refused(code):
    keys = shown(filled()).layers[0].keys
    with pytest.raises(ApplyError, match="of a key/value cache: processes share out its heads"):
        code(keys)
    assert isinstance(keys, CacheShare)


@pytest.mark.parametrize(
    "code",
    [
        lambda cache: cache.crop(-2),
        lambda cache: cache.reorder_cache(torch.tensor([2, 0, 1])),
        lambda cache: cache.batch_repeat_interleave(2),
        lambda cache: cache.batch_select_indices(torch.tensor([1, 2])),
        lambda cache: cache.layers[0].keys.mul_(0.5),
        lambda cache: cache.layers[0].keys.__setitem__((slice(None), slice(None), 2), 0.0),
        lambda cache: cache.layers[0].keys[1:].zero_(),
        lambda cache: cache.layers[0].values[..., 0].zero_(),
        lambda cache: setattr(cache.layers[0], "keys", torch.cat([cache.layers[0].keys] * 2, dim=-2)),
        lambda cache: setattr(
            cache.layers[0], "keys", cache.layers[0].keys / cache.layers[0].keys.sum(-1, keepdim=True)
        ),
    ],
)
def test_what_leaves_the_heads_alone_is_as_for_plain_tensors(code):
    plain, cache = filled(), shown(filled())
    for one in (plain, cache):
        code(one)
    for one, other in zip(plain.layers, cache.layers):
        assert isinstance(other.keys, CacheShare) and one.keys.shape == other.keys.shape
        assert torch.equal(one.keys, other.keys.as_subclass(torch.Tensor)) and torch.equal(
            one.values, other.values.as_subclass(torch.Tensor)
        )
    assert cache.get_seq_length() == plain.get_seq_length()


def test_copies_are_shares_and_files_are_plain():
    cache = shown(filled())
    assert isinstance(copy.deepcopy(cache).layers[0].keys, CacheShare)
    file = io.BytesIO()
    torch.save(cache.layers[0].keys, file)
    file.seek(0)
    assert type(torch.load(file)) is torch.Tensor and isinstance(cache.layers[0].keys, CacheShare)


def test_a_part_of_the_model_that_is_called_by_itself_reads_them():
    class Part(torch.nn.Module):
        def forward(self, keys):
            return keys[:, :, None].sum()

    class Around(Part):
        pass

    cache = shown(filled())
    around = Around()
    around.inside = torch.nn.Linear(1, 1)
    around.inside.__dict__["_applied"] = True
    with pytest.raises(ApplyError, match="of a key/value cache"):
        around(cache.layers[0].keys)
    keys = cache.layers[0].keys
    assert Part()(keys) == keys.sum() and type(keys) is torch.Tensor
