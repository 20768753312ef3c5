"""No rank's share leaves as an answer: state of any class stays on the ranks, other shares are refused."""

import copy

import pytest
import torch


pytest.importorskip("transformers")

from transformers import WhisperConfig, WhisperForConditionalGeneration  # noqa: E402

from modular_converter.parallel import Session, parallelize  # noqa: E402
from modular_converter.parallel.engine.remote.same_answers import (  # noqa: E402
    Compared,
    compare_answers,
    is_share,
    tensors_by_path,
)
from modular_converter.parallel.errors import ApplyError, RankError  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from tests.parallel.stateful import StatefulModel  # noqa: E402


IDS = torch.arange(5, 29).view(2, 12)


def stateful():
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 96}
    return StatefulModel(StatefulModel.config_class(**sizes)).eval()


@pytest.fixture(scope="module")
def pair(ranks):
    model = stateful()
    whole = copy.deepcopy(model)
    yield parallelize(model, session=ranks), whole
    model.cpu()


@pytest.mark.parametrize("form", ["tuple", "list", "object", "nameless"])
@torch.no_grad()
def test_state_of_any_class_stays_on_the_ranks(pair, form):
    model, whole = pair
    (hidden, state), (want, own) = (
        list(m(IDS[:, :11], form=form).values() if form != "nameless" else m(IDS[:, :11], form=form)) for m in pair
    )
    assert relative_error(hidden, want) < 2e-4 and "on the ranks" in repr(state)
    if form != "object":
        with pytest.raises(ApplyError, match="its own share; pass this handle to the next call"):
            state[0]
    got, expected = model(IDS[:, 11:], past_key_values=state)[0], whole(IDS[:, 11:], past_key_values=own)[0]
    assert relative_error(got, expected) < 2e-4


@pytest.mark.parametrize("extra", ["values", "value", "zeros"])
def test_an_output_that_is_a_share_is_refused_and_the_ranks_go_on(pair, extra):
    model, whole = pair
    for _ in range(2):
        with pytest.raises(ApplyError, match=r"own share, \(2, 12, 32\) of \(2, 12, 64\)"):
            model(IDS, extra=extra, use_cache=False)
    with torch.no_grad():
        assert relative_error(model(IDS)[0], whole(IDS)[0]) < 2e-4


@pytest.mark.parametrize(
    "extra, said",
    [
        ("length", r"length is each rank's own share, 32 of 64"),
        ("size", r"more.size is each rank's own share, \[2, 12, 32\] of \[2, 12, 64\]"),
        ("number", r"different answers \(number\)"),
        ("array", r"different answers \(array\)"),
        ("slots", r"slots.inner is each rank's own share, \(2, 12, 32\)"),
        ("queue", r"queue.0 is each rank's own share, \(2, 12, 32\)"),
    ],
)
def test_values_that_are_no_tensors_can_be_shares_too(pair, extra, said):
    model, _ = pair
    for _ in range(2):
        with pytest.raises(ApplyError, match=said):
            model(IDS, extra=extra, use_cache=False)


def test_other_values_that_are_no_tensors_leave(pair):
    with torch.no_grad():
        got, want = (list(model(IDS, extra="plain", use_cache=False)["plain"]) for model in pair)
    assert relative_error(torch.as_tensor(got.pop(3)), torch.as_tensor(want.pop(3))) < 2e-4 and got == want


def test_ranks_that_come_apart_are_ended():
    with Session(("cpu", "cpu"), init_method="forkserver") as ranks:
        model = parallelize(stateful(), session=ranks)
        with pytest.raises(RankError, match="different answers"):
            model(IDS, form="apart", use_cache=False)
        assert "different answers" in ranks.ended


@pytest.mark.slow
def test_attentions_that_generate_reads_are_whole(ranks):
    torch.manual_seed(0)
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 64}
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(
        **sizes, **heads, **tokens, num_mel_bins=8, max_source_positions=50, max_target_positions=32
    )
    config._attn_implementation = "eager"
    model = WhisperForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        parameter.data.normal_(0, 0.3)
    settings = {"alignment_heads": [[0, 3], [1, 2]], "no_timestamps_token_id": 50, "suppress_tokens": None}
    vars(model.generation_config).update(settings, begin_suppress_tokens=None)
    given = {"return_token_timestamps": True, "max_new_tokens": 6, "return_dict_in_generate": True, "num_frames": 100}
    sound = torch.randn(1, 8, 100)
    want = model.generate(sound, **given)
    parallelize(model, session=ranks)
    got = model.generate(sound, **given)
    model.cpu()
    assert torch.equal(got["sequences"], want["sequences"])
    assert torch.equal(got["token_timestamps"], want["token_timestamps"])


def compared(*results):
    """The results of ranks, compared as they would be."""
    rows = []
    for result in results:
        compare_answers(result, 2, lambda flat: rows.append(flat) or torch.cat([flat, flat]))
    tensors = dict(tensors_by_path(results[0]))
    return Compared(tensors, torch.stack(rows).view(len(results), len(tensors), 4)).different()


def test_what_counts_as_different():
    x = torch.randn(3, 40)
    assert compared({"a": x, "b": [x, None]}, {"a": x * (1 + 1e-6), "b": [x, None]}) == []
    assert compared({"a": x, "b": [x]}, {"a": x, "b": [x.flip(0)]}) == [("b", "0")]
    assert compared(x, x.reshape(40, 3)) == [()] and compared(x, x.double()) == [()]
    tokens = torch.arange(12)
    other = tokens.clone()
    other[[3, 4]] = other[[4, 3]]
    assert compared(tokens, tokens.clone()) == [] and compared(tokens, other) == [()]
    masked = x.clone()
    masked[:, :4] = torch.finfo(x.dtype).min
    assert compared(masked, masked.clone()) == [] and compared(masked, masked * 2) == [()]
    lost = x.clone()
    lost[0, 0] = float("nan")
    assert compared(lost, lost.clone()) == [] and compared(x, lost) == [()]


def test_a_share_differs_in_one_length_alone():
    assert is_share((2, 4, 8), (2, 8, 8)) and not is_share((2, 8), (2, 8))
    assert not is_share((1, 4, 8), (2, 8, 8)) and not is_share((4, 8), (2, 4, 8)) and not is_share((2, 9), (2, 8))
