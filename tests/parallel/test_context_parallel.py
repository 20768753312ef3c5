"""Parts of the sequence on each process: outputs and training equal those of one process, and impossible cases are refused."""

from __future__ import annotations

import gc
import weakref

import pytest


pytest.importorskip("transformers")
import torch  # noqa: E402

from modular_converter.parallel.choice.context_parallel import (  # noqa: E402
    _joined,
    _own,
    causal_mask,
    compute_in_parts,
    difference_in_parts,
)
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.shard.collectives import FakeGroup  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from tests.parallel.launch import line_of  # noqa: E402


SCRIPT = "tests/parallel/context_script.py"


class Known(FakeGroup):
    def __init__(self, size, rank, parts):
        super().__init__(size, rank)
        self.parts = parts

    def all_gather(self, tensor):
        return self.parts


def test_parts_have_a_piece_from_the_front_and_one_from_the_back():
    whole = torch.arange(12).view(1, 12, 1)
    parts = [_own(whole, FakeGroup(3, rank)) for rank in range(3)]
    assert [one.flatten().tolist() for one in parts] == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    assert torch.equal(_joined(parts[0], Known(3, 0, parts)), whole)


def test_a_small_instance_proves_or_refuses():
    assert difference_in_parts(build(target_of("llama", "causal"), {}).model) == ""
    assert "differs by" in difference_in_parts(build(target_of("opt", "causal"), {}).model)  # positions by the mask


def test_a_gemma_trains_as_on_one_process():
    found = line_of(2, SCRIPT, "gemma3_text,cp2")["gemma3_text,cp2"]
    same(found)
    hook, stored, alone = found["told"]
    assert "post_attention_layernorm has a hook, which would get this process's share" in hook
    assert "post_attention_layernorm.kept was stored by a forward and is this process's share" in stored
    assert "cp: a part of the model was called by itself" in alone


def same(found, worst=1e-6, lengths=(4, 18)):
    """Losses are computed in float32, whatever the model's type is."""
    assert found["worst"] < worst and found["outputs"] < worst
    assert found["lengths"] == [*lengths]  # of 5 and 33 tokens


TWO = ["llama,cp2", "gpt2,cp2", "mistral,cp2", "qwen3,cp2,recompute"]
FOUR = ["llama,fsdp2.cp2", "llama,ddp2.cp2", "qwen3,cp2.tp2"]


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "cases"), [(2, TWO), (4, FOUR)])
def test_training_is_that_of_one_process(processes, cases):
    found = line_of(processes, SCRIPT, *cases)
    assert found.keys() == {*cases}
    for case in cases:
        same(found[case])


@pytest.mark.slow
def test_more_parts_and_experts():
    same(line_of(4, SCRIPT, "qwen3,cp4")["qwen3,cp4"], lengths=(2, 10))
    same(line_of(2, SCRIPT, "qwen3_moe,cp2")["qwen3_moe,cp2"], 1e-3)


SAID = {
    "generate": "generate keeps keys and values, of which a process has its part alone",
    "cache": "use_cache: with cp no cache is kept",
    "empty cache": "past_key_values: with cp no cache is kept",
    "part": "cp: a part of the model was called by itself",
    "packed": "cp: position_ids that begin anew are several sequences in a row",
    "mask": "cp: attention_mask has the shape [2, 1, 1, 33]",
    "embeddings": "cp: give input_ids of [batch, tokens]",
    "dropout": "cp: dropout would draw other numbers than one device",
    "tensor": "cp: own is a tensor that no rule cuts into parts of the sequence",
    "loss of few logits": "cp: a loss needs all logits; leave labels or logits_to_keep out",
    "eager": 'cp needs the attention "sdpa", and LlamaForCausalLM has eager',
    "by length": "cp: the frequencies of model.rotary_emb (dynamic) depend on the whole sequence's length",
    "set loss": "cp: the loss of LlamaForCausalLM is not that of a causal model",
    "own loss": "for a loss of your own leave labels out",
    "other batches": "processes 0 and 1 divide the same layers, stages or sequences and were given different batches",
    "compiled": "cp goes neither with compile= nor with sequence_parallel= yet",
    "stages": "cp2.pp2: cp goes together with ddp, fsdp and tp alone",
    "mixing": "cp: on parts of a sequence output 0 differs by",
}


@pytest.mark.slow
def test_what_cannot_be_is_told():
    found = line_of(2, SCRIPT, "refused")
    assert found.keys() == SAID.keys()
    assert not [(name, found[name]) for name, text in SAID.items() if text not in found[name]]


def test_a_mask_for_gpus_takes_no_memory():
    mask = causal_mask(3, 5, torch.device("cuda"))
    assert mask.untyped_storage().nbytes() == 0
    query, key = torch.randn(1, 2, 3, 8), torch.randn(1, 2, 5, 8)
    attend = torch.nn.functional.scaled_dot_product_attention
    dense = attend(query, key, key, attn_mask=causal_mask(3, 5, torch.device("cpu")))
    assert torch.equal(attend(query, key, key, attn_mask=mask), dense)


def test_the_tables_of_the_library_hold_no_model():
    model = build(target_of("llama", "causal"), {}).model
    compute_in_parts(model, FakeGroup(2))
    held = weakref.ref(model)
    del model
    gc.collect()
    assert held() is None


def test_a_part_of_a_model_that_is_called_by_itself_is_refused_at_its_mask():
    small = build(target_of("llama", "causal"), {})
    compute_in_parts(small.model, FakeGroup(2, 0))
    with pytest.raises(ApplyError, match="a part of the model was called by itself"):
        small.model.model(input_ids=small.inputs["input_ids"])
