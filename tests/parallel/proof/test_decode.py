"""Decoded tokens belong to the proof: a cache has sizes of its own, which no forward shows."""

import dataclasses

import pytest
import torch

from modular_converter.parallel.proof.compare import decoded, generation_inputs
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.prove import derive_model
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


def small(path):
    return build(target_of(f"transformers.models.{path}"))


@pytest.mark.parametrize(
    "path", ["llama.modeling_llama.LlamaForCausalLM", "t5.modeling_t5.T5ForConditionalGeneration"]
)
def test_a_generating_model_gives_logits_a_token(path):
    found = small(path)
    first, second = decoded(found.model, found.inputs)
    assert first.shape == second.shape == (2, found.model.config.vocab_size)
    assert subject_of(found.model, found.inputs).whole.tokens


def test_other_models_give_none():
    found = small("bert.modeling_bert.BertModel")
    assert generation_inputs(found.model, found.inputs) is None and decoded(found.model, found.inputs) == []


def test_a_state_of_the_whole_width_is_noticed():
    """RWKV makes its state from the configuration: a sharded layer fits a forward, and no decoding step."""
    target = target_of("transformers.models.rwkv.modeling_rwkv.RwkvForCausalLM")
    derived = derive_model(target)
    full = plan_of_trace(derived.trace)
    refused = check_on_threads(derived.subject, full, 2)
    assert refused.layer.endswith("attention") and "size of tensor" in refused.reason
    blind = dataclasses.replace(derived.subject, whole=dataclasses.replace(derived.subject.whole, tokens=[]))
    assert check_on_threads(blind, full, 2).passed
    assert derived.verdict.passed and derived.plan != full and derived.plan.rules


def test_other_logits_fail():
    found = small("llama.modeling_llama.LlamaForCausalLM")
    subject = subject_of(found.model, found.inputs)
    plan = plan_of_trace(record(found.model, found.inputs, "llama"))
    assert check_on_threads(subject, plan, 2).passed
    other = dataclasses.replace(subject.whole, tokens=[torch.zeros_like(t) for t in subject.whole.tokens])
    assert check_on_threads(dataclasses.replace(subject, whole=other), plan, 2).layer == "the decoded tokens"
