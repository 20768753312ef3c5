"""Values that leave the ranks and values that stay: caches of the caller and of results, attention weights of all
heads.
"""

import copy
import gc
import os
import weakref

import pytest
import torch
from torch.utils.weak import WeakIdKeyDictionary


pytest.importorskip("transformers")
from transformers import (  # noqa: E402
    BartConfig,
    BartForConditionalGeneration,
    DynamicCache,
    EncoderDecoderCache,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    StaticCache,
)

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.base.attention_heads import HeadCounts, local_modules, whole_heads  # noqa: E402
from modular_converter.parallel.engine.base.call_state import caches_in, has_content
from modular_converter.parallel.engine.remote.placement import _forget_handle  # noqa: E402
from modular_converter.parallel.engine.remote.remote_values import OnlyThere, check_plain, hold  # noqa: E402
from modular_converter.parallel.errors import ApplyError, PlanError  # noqa: E402
from modular_converter.parallel.plans.resolve import Piece  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from modular_converter.parallel.shard.collectives import FakeGroup  # noqa: E402
from modular_converter.parallel.styles.layout import COLWISE, GATHERED


IDS = torch.arange(1, 19).view(2, 9)


def llama():
    """4 query heads and 2 key/value heads: on 2 ranks, a rank's query heads are as many as all key/value heads."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 64}
    config = LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2, attn_implementation="eager")
    model = LlamaForCausalLM(config).eval()
    model.generation_config.pad_token_id = 0
    return model


@pytest.fixture(scope="module")
def whole():
    model = llama()
    with torch.no_grad():
        want = model(IDS, output_attentions=True)
        tokens = model.generate(IDS, max_new_tokens=5, do_sample=False, eos_token_id=-1)
    return want, tokens


@pytest.fixture(scope="module")
def model(ranks):
    found = parallelize(llama(), session=ranks)
    yield found
    found._placement.end()


def kinds(model):
    return {"dynamic": lambda: DynamicCache(config=model.config), "static": lambda: StaticCache(model.config, 20)}


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_cache_of_the_callers_own_keeps_what_the_ranks_put_into_it(model, whole, kind):
    cache = kinds(model)[kind]()
    own = type(cache)
    first = model(IDS[:, :5], past_key_values=cache)
    assert int(cache.get_seq_length()) == 5 and isinstance(cache, own) and first.past_key_values is cache
    last = model(IDS[:, 5:], past_key_values=cache)
    assert relative_error(last.logits, whole[0].logits[:, 5:]) < 2e-4
    assert int(cache.get_seq_length()) == 9 and len(cache) == 2 and cache.is_compileable == (kind == "static")
    assert int(cache.layers[1].get_seq_length()) == 9
    for share in (lambda: cache.layers[0].keys, lambda: list(DynamicCache.__iter__(cache))):
        with pytest.raises(ApplyError, match=r"Layer.keys holds each rank's own share"):
            share()
    if kind == "static":
        cache.reset()
        assert relative_error(model(IDS, past_key_values=cache).logits, whole[0].logits) < 2e-4


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_generate_goes_on_from_a_cache_of_the_callers_own(model, whole, kind):
    cache, tokens = kinds(model)[kind](), whole[1]
    model(IDS[:, :6], past_key_values=cache)
    given = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": -1}
    assert torch.equal(model.generate(IDS, past_key_values=cache, **given), tokens)
    assert int(cache.get_seq_length()) == 13
    fresh = kinds(model)[kind]()
    assert torch.equal(model.generate(IDS, past_key_values=fresh, **given), tokens)
    assert int(fresh.get_seq_length()) == 13


def test_a_cache_is_taken_where_generate_would_make_a_static_one(ranks, whole):
    model = parallelize(llama(), session=ranks, compile=True)
    given = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": -1, "return_dict_in_generate": True}
    for cache in (None, DynamicCache(config=model.config), None):
        got = model.generate(IDS, past_key_values=cache, **given)
        assert torch.equal(got.sequences, whole[1])
        assert isinstance(got.past_key_values, StaticCache if cache is None else DynamicCache)
    model._placement.end()


def test_a_prefix_is_copied_on_the_ranks(model, whole):
    prefix = DynamicCache(config=model.config)
    model(IDS[:, :5], past_key_values=prefix)
    for cache in (copy.deepcopy(prefix), copy.deepcopy(model(IDS[:, :5], use_cache=True).past_key_values)):
        assert isinstance(cache, DynamicCache)
        assert relative_error(model(IDS[:, 5:], past_key_values=cache).logits, whole[0].logits[:, 5:]) < 2e-4
        assert cache.get_seq_length() == 9
    assert prefix.get_seq_length() == 5
    with pytest.raises(PlanError, match=r"copy\.deepcopy"):
        copy.copy(prefix)


def test_a_handle_has_the_names_of_what_it_stands_for(model):
    cache = model(IDS, use_cache=True).past_key_values
    assert hasattr(cache, "crop") and not hasattr(cache, "nonsense") and cache.is_sliding == [False, False]
    cache.crop(-4)
    assert cache.get_seq_length() == 5 and bool(cache)
    with pytest.raises(PlanError, match="cannot be set"):
        cache.layers = []


def test_a_static_cache_of_a_result_can_be_reset(model):
    given = {"max_new_tokens": 3, "return_dict_in_generate": True, "cache_implementation": "static"}
    cache = model.generate(IDS, **given).past_key_values
    assert int(cache.get_seq_length()) > 0
    cache.reset()
    assert int(cache.get_seq_length()) == 0


def test_a_cache_that_was_filled_elsewhere_is_refused(model):
    cache = DynamicCache(config=model.config)
    cache.update(torch.zeros(2, 2, 5, 8), torch.zeros(2, 2, 5, 8), 0)
    with pytest.raises(ApplyError, match="DynamicCache holds keys and values"):
        model(IDS, past_key_values=cache)
    assert type(cache) is DynamicCache and cache.get_seq_length() == 5


def test_a_cache_of_a_model_that_was_taken_back_says_so(ranks, model):
    other = parallelize(llama(), session=ranks)
    cache = DynamicCache(config=other.config)
    other(IDS, past_key_values=cache)
    other.cpu()
    with pytest.raises(ApplyError, match="taken back"):
        cache.get_seq_length()
    with pytest.raises(ApplyError, match="taken back"):
        model(IDS, past_key_values=cache)


def test_caches_that_are_dropped_are_dropped_on_the_ranks_at_once(model):
    placement = model._placement
    gc.collect()  # caches of earlier tests, which tracebacks of expected errors keep
    for _ in range(20):
        cache = DynamicCache(config=model.config)
        model(IDS, past_key_values=cache)
    number = cache._number
    with placement.session.lock:
        del cache
        assert placement.session.unneeded  # a call is under way
    assert not placement.handles and not placement.session.unneeded
    assert not placement.session.unanswered  # this message gets no answer
    for _ in range(20):
        placement.session.forget(placement.number, range(1))  # more than the pipes would hold without a reader
    with pytest.raises(KeyError, match=str(number)):
        placement._call_held(number, "get_seq_length", (), {})


def test_a_cache_that_is_dropped_in_a_fork_stays_on_the_ranks(model):
    session = model._placement.session
    with session.lock:  # a call is under way, so that what is dropped is noted
        _forget_handle(weakref.ref(session), model._placement.number, 1, process=os.getpid() + 1)
        _forget_handle(lambda: None, model._placement.number, 1, process=os.getpid())  # its session is gone
        assert not session.unneeded


def test_what_an_answer_names_again_is_kept(model):
    cache = model(IDS, use_cache=True).past_key_values
    session, number = model._placement.session, cache._number
    with session.lock:
        session.forget(model._placement.number, range(number, number + 1))
        session.remember(model._placement.number, number)
    assert cache.get_seq_length() == 9


@pytest.mark.parametrize("given", [{}, {"return_dict": False}])
def test_attention_weights_come_with_all_heads(model, whole, given):
    got = model(IDS, output_attentions=True, use_cache=False, **given)
    attentions = got[-1] if given else got.attentions
    assert [tuple(one.shape) for one in attentions] == [(2, 4, 9, 9)] * 2
    assert all(relative_error(a, b) < 2e-4 for a, b in zip(attentions, whole[0].attentions))


def test_attention_weights_of_generate_come_with_all_heads(model):
    settings = GenerationConfig(max_new_tokens=3, return_dict_in_generate=True, output_attentions=True, pad_token_id=0)
    for given in ({"generation_config": settings}, {**settings.to_diff_dict()}):
        got = model.generate(IDS, **given)
        assert {one.shape[1] for step in got.attentions for one in step} == {4}


@pytest.mark.slow
def test_encoder_and_decoder_may_differ_in_heads(ranks):
    shape = {"d_model": 32, "vocab_size": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 64}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
    config = BartConfig(**shape, **heads, attn_implementation="eager", decoder_start_token_id=2, pad_token_id=1)
    found = BartForConditionalGeneration(config).eval()
    with torch.no_grad():
        want = found(IDS, output_attentions=True)
    parallelize(found, session=ranks)
    got = found(IDS, output_attentions=True)
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        assert all(relative_error(a, b) < 2e-4 for a, b in zip(got[name], want[name]))
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    found(IDS, decoder_input_ids=IDS[:, :4], past_key_values=cache)
    assert cache.get_seq_length() == 4 and cache.cross_attention_cache.get_seq_length() == 9
    found._placement.end()


def test_who_has_a_share_of_the_heads():
    model = torch.nn.ModuleDict({"attention": torch.nn.Module(), "dense": torch.nn.Module()})
    model["attention"].query, model["attention"].drop = torch.nn.Linear(4, 4), torch.nn.Dropout()
    model["dense"].gathered, model["dense"].drop = torch.nn.Linear(4, 4), torch.nn.Dropout()
    layouts = {"attention.query.weight": COLWISE, "dense.gathered.weight": GATHERED}
    found = local_modules(model, {name: Piece(frozenset({layout}), 0, (), "") for name, layout in layouts.items()})
    assert id(model["attention"]) in found and id(model["attention"].drop) in found
    assert id(model["dense"]) not in found and id(model["dense"].drop) not in found


def test_weights_of_unknown_makers_are_told_by_their_field_and_query_heads():
    class Model:
        config = LlamaConfig(num_attention_heads=4, num_key_value_heads=2)

    share = torch.ones(1, 2, 3, 3)
    result = {"cross_attentions": (share,), "other": share, "attentions": torch.ones(1, 4, 3, 3)}
    counts = HeadCounts(FakeGroup(2), False)
    whole_heads(result, Model, counts, {}, lambda value, own: torch.cat([value, value], 1))
    assert {name: (v[0] if isinstance(v, tuple) else v).shape[1] for name, v in result.items()} == {
        "cross_attentions": 4,
        "other": 2,
        "attentions": 4,
    }
    noted = WeakIdKeyDictionary({share: False})
    assert whole_heads({"attentions": share}, Model, counts, noted, lambda value, own: 1 / 0)["attentions"] is share


def test_caches_are_found_once_and_keep_their_numbers():
    class Prefix(DynamicCache):
        pass

    one, two = Prefix(), DynamicCache()
    assert caches_in([{"a": one}, (two, one), DynamicCache, GenerationConfig(), None, "Cache"]) == [one, two]
    assert hold((one, two), 100, {7: two}) == {100: one, 7: two}
    assert not has_content(one) and not has_content(StaticCache(LlamaConfig(num_hidden_layers=1), 8))
    two.update(torch.zeros(1, 1, 1, 1), torch.zeros(1, 1, 1, 1), 0)
    assert has_content(two) and has_content(EncoderDecoderCache(DynamicCache(), two))
    check_plain([1, "a", None, torch.tensor(3), {"b": two}], "x")
    with pytest.raises(ApplyError, match="x holds each rank's own share"):
        check_plain([torch.zeros(2, 2)], "x")


class Counts:
    """A processor with a state of its own."""

    def __init__(self):
        self.calls, self.seen = 0, torch.zeros(64)

    def __call__(self, ids, scores):
        self.calls += 1
        self.seen += scores.mean(0)
        return scores - self.seen

    def allowed(self, row, ids):
        self.calls += 1
        return [int(ids[-1] + self.calls) % 64]


class Drawn(torch.nn.Module):
    """It draws numbers of a generator that it is given, or of torch's own."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)

    def forward(self, x, generator=None):
        hidden = self.up(x)
        return self.down((hidden + torch.randn(hidden.shape, generator=generator)).relu())


def test_what_a_call_changes_in_its_arguments_comes_back(ranks):
    whole, there = llama(), parallelize(llama(), session=ranks)
    for attribute in ("logits_processor", "prefix_allowed_tokens_fn"):
        found = []
        for model in (whole, there):
            own = Counts()
            given = {attribute: [own] if attribute == "logits_processor" else own.allowed}
            ids = [model.generate(IDS, max_new_tokens=3, do_sample=False, **given).tolist() for _ in range(2)]
            found.append((ids, own.calls, own.seen.tolist()))
        assert found[0][:2] == found[1][:2] and found[0][1] in (6, 12)
        assert found[0][2] == pytest.approx(found[1][2], abs=1e-5)
    there.cpu()


def test_generators_stand_where_one_device_would_leave_them(ranks):
    x, found = torch.ones(2, 4), []
    for model in (Drawn(), parallelize(Drawn(), session=ranks, example_inputs=(x,), probe=False)):
        generator = torch.Generator().manual_seed(3)
        torch.manual_seed(2)
        given = [model(x, generator=generator) for _ in range(2)] + [model(x)]
        found.append(
            torch.cat([one.detach().flatten() for one in (*given, torch.rand(2), torch.rand(2, generator=generator))])
        )
    assert torch.allclose(*found, atol=1e-5), found


def test_an_object_that_the_ranks_keep_is_told_where_code_uses_it():
    one = OnlyThere("layers.0.found", "Tree")
    for use in (lambda: one.leaves, lambda: one[0], lambda: len(one)):
        with pytest.raises(
            ApplyError, match="layers.0.found was stored by a call on the ranks, and a Tree .* does not come back"
        ):
            use()
    assert repr(one) == "<Tree on the ranks>" and not hasattr(one, "__array__")


class Keeps(torch.nn.Module):
    """Stores a tensor that all ranks have alike."""

    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        found = self.down(self.up(x))
        self.down.kept = self.kept = found * 2
        return found


def test_what_a_forward_has_stored_goes_with_the_model(ranks):
    x = torch.ones(2, 8)
    model = parallelize(Keeps().eval(), session=ranks, example_inputs=(x,), probe=False)
    found, part = model(x), model.down
    assert torch.allclose(part.kept, found * 2)
    model(x)
    del model
    gc.collect()
    with pytest.raises(PlanError, match="the model to which down.kept belongs is gone; keep the model"):
        part.kept.sum()
