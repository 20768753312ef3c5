"""The model in hand is compared with its ranks before its weights are handed over; another plan, or none, is taken."""

import copy
import logging

import pytest
import torch


pytest.importorskip("transformers")
from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.choice import select_plan as choice  # noqa: E402
from modular_converter.parallel.choice.trials import kinds_of, one_of_each_kind  # noqa: E402
from modular_converter.parallel.engine.base.trials_of_model import probe_of  # noqa: E402
from modular_converter.parallel.engine.remote import place_on_ranks  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.proof.judge import relative_error  # noqa: E402
from tests.parallel.deceptive import DeceptiveConfig  # noqa: E402
from tests.parallel.exchanged import Deep, NormalisedLinear, ScaledLinear, exchanged  # noqa: E402


IDS = torch.arange(5, 29).view(2, 12)
WRONG = "plan deep\nrule layers.*.up colwise\nrule layers.*.down rowwise\n"


def deep():
    torch.manual_seed(1)
    return Deep(DeceptiveConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=4, vocab_size=96)).eval()


def llama(layers=3):
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": layers, "vocab_size": 96}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4)).eval()
    for parameter in model.parameters():
        parameter.data.mul_(8)
    return model


def scaled():
    return exchanged(llama(), ScaledLinear, "o_proj")


def normalised():
    return exchanged(llama(), NormalisedLinear, "down_proj")


@pytest.mark.parametrize("made", [deep, *(pytest.param(one, marks=pytest.mark.slow) for one in (scaled, normalised))])
def test_layers_that_no_small_instance_shows_get_a_plan_that_holds(ranks, caplog, made):
    model = made()
    with torch.no_grad():
        want = copy.deepcopy(model)(IDS)[0]
    with caplog.at_level(logging.WARNING, "modular_converter"):
        parallelize(model, session=ranks)
    got = model(IDS)[0]
    model.cpu()
    assert ("stay whole" in caplog.text) == (made is not deep) and "fails on one layer" not in caplog.text
    assert relative_error(got, want) < 2e-4


def test_layers_that_only_the_ranks_show_get_a_plan_that_holds(ranks, caplog, monkeypatch, nothing_kept):
    monkeypatch.setattr(choice, "restricted_to_layers", lambda model, plan, origin, ranks, own: (plan, origin))
    model = deep()
    with torch.no_grad():
        want = copy.deepcopy(model)(IDS)[0]
    with caplog.at_level(logging.INFO, "modular_converter"):
        parallelize(model, session=ranks)
    got = model(IDS)[0]
    model.cpu()
    assert "fails on one layer of each kind" in caplog.text
    assert "tried on the ranks: one layer of each kind for inference in float32" in caplog.text
    assert relative_error(got, want) < 2e-4


def test_a_given_plan_that_changes_numbers_is_refused_and_the_model_is_as_it_was(ranks):
    model = deep()
    with torch.no_grad():
        want = copy.deepcopy(model)(IDS)[0]
    with pytest.raises(
        ApplyError,
        match="other numbers on the ranks than here .*the plan is wrong for this model, which is unchanged: give another plan=",
    ):
        parallelize(model, session=ranks, plan=WRONG)
    with torch.no_grad():
        assert torch.equal(model(IDS)[0], want)
    parallelize(model, session=ranks, plan=WRONG, probe=False)
    assert relative_error(model(IDS)[0], want) > 1e-2
    model.cpu()


def test_one_layer_of_each_kind_shares_the_weights():
    model = normalised()
    model.model.layers[0].mlp.down_proj = torch.nn.Linear(128, 64, bias=False)
    kinds = kinds_of(model)
    short = one_of_each_kind(model, kinds)
    assert sorted(kinds) == [f"model.layers.{n}" for n in range(3)] and len(set(kinds.values())) == 2
    assert list(short.model.layers) == list(model.model.layers[:2]) and len(model.model.layers) == 3
    assert short.lm_head is model.lm_head and "model.layers.2.mlp.up_proj.weight" not in short.state_dict()


def test_layers_that_the_code_counts_keep_their_places():
    model = deep()
    kinds = kinds_of(model)
    assert len(set(kinds.values())) == 2
    assert list(one_of_each_kind(model, kinds).layers) == list(model.layers[:3])


def test_a_model_that_is_run_whole_and_one_that_cannot_be_run():
    model = llama(2)
    found = probe_of(model)
    assert [set(given) >= {"input_ids"} for given in found.inputs] == [True, True]
    assert "attention_mask" in found.inputs[0] and model.training is False
    assert "AttributeError" in probe_of(torch.nn.Linear(3, 3))


def test_layers_that_were_tried_are_not_sent_again(ranks, monkeypatch):
    model, sent, write = llama(4), [], place_on_ranks.write_tensor
    with torch.no_grad():
        want = copy.deepcopy(model)(IDS)[0]
    size = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    monkeypatch.setattr(place_on_ranks, "write_tensor", lambda *given: sent.append(given[2].nbytes) or write(*given))
    plan = "plan x\nrule model.layers.*.mlp.up_proj colwise\nrule model.layers.*.mlp.gate_proj colwise\n"
    parallelize(model, session=ranks, plan=f"{plan}rule model.layers.*.mlp.down_proj rowwise\n")
    got = model(IDS)[0]
    model.cpu()
    assert relative_error(got, want) < 2e-4 and size <= sum(sent) < size + 100
    with torch.no_grad():
        assert relative_error(model(IDS)[0], want) < 1e-6
