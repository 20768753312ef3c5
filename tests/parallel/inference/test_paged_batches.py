"""The library's continuous batching on ranks gives the tokens of one device."""

import json

import pytest
import torch


pytest.importorskip("transformers")
from transformers import (  # noqa: E402
    ContinuousBatchingConfig,
    Gemma2Config,
    Gemma2ForCausalLM,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from modular_converter.parallel import Session, parallelize  # noqa: E402
from modular_converter.parallel.errors import PlanError  # noqa: E402
from modular_converter.parallel.inference.generation import checked_batches  # noqa: E402
from tests.parallel.launch import lines_of  # noqa: E402


SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
MODELS = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE)),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**SHAPE, head_dim=8, sliding_window=16)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128)),
    "qwen3_moe": lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE, head_dim=8, **EXPERTS)),
}
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12] * 5, [3, 4]]


def made(name):
    torch.manual_seed(0)
    return MODELS[name]().eval()


def tokens(model, **settings):
    """The tokens for all prompts from a fresh random state."""
    torch.manual_seed(5)
    found = model.generate_batch(
        PROMPTS,
        generation_config=GenerationConfig(max_new_tokens=6, eos_token_id=1, pad_token_id=0, **settings),
        continuous_batching_config=ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64, page_size=32),
    )
    assert len(found) == len(PROMPTS)
    return [one.generated_tokens for one in found.values()]


def test_tokens_are_those_of_one_device(ranks):
    want = tokens(made("llama"), do_sample=False)
    drawn = tokens(made("llama"), do_sample=True)
    assert want != drawn
    with parallelize(made("llama"), session=ranks) as model:
        assert tokens(model, do_sample=False) == want
        assert tokens(model, do_sample=True) == drawn
        ids = torch.tensor(PROMPTS[1:2])
        alone = model.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=1, pad_token_id=0)
        assert alone[0, ids.shape[1] :].tolist() == want[1]


@pytest.mark.slow
def test_attention_that_the_library_exchanges_is_exchanged_in_each_share_and_back(ranks):
    whole = made("llama")
    whole.set_attn_implementation("eager")
    want = tokens(whole, do_sample=False)
    with parallelize(whole, session=ranks) as model:
        assert tokens(model, do_sample=False) == want
        assert model.config._attn_implementation == "eager"
        assert len(model(torch.tensor(PROMPTS[:1]), output_attentions=True).attentions) == 2


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda model: model.generate_batch(PROMPTS, persistent_manager=True), "persistent_manager=True.*one call"),
        (lambda model: model.init_continuous_batching(), "init_continuous_batching makes a manager.*generate_batch"),
        (lambda model: model.continuous_batching_context_manager(), "makes a manager.*generate_batch"),
    ],
)
def test_a_manager_is_not_left_behind(ranks, use, said):
    with parallelize(made("llama"), session=ranks) as model, pytest.raises(PlanError, match=said):
        use(model)


def test_ranks_on_cpus_share_the_memory_of_their_machine():
    def config_of(config, cpus=2):
        return checked_batches(LlamaForCausalLM, (PROMPTS, None, config), {}, cpus)["continuous_batching_config"]

    assert config_of(None).max_memory_percent == 0.25
    assert config_of(own := ContinuousBatchingConfig()).max_memory_percent == 0.25 and own.max_memory_percent is None
    assert config_of(ContinuousBatchingConfig(num_blocks=8)).max_memory_percent is None
    assert config_of(ContinuousBatchingConfig(max_memory_percent=0.1)).max_memory_percent == 0.1
    assert config_of(own := ContinuousBatchingConfig(), 0) is own


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gemma2", "gpt2", "qwen3_moe"])
def test_tokens_of_other_models(ranks, name):
    want = [tokens(made(name), do_sample=sample) for sample in (False, True)]
    with parallelize(made(name), session=ranks) as model:
        assert [tokens(model, do_sample=sample) for sample in (False, True)] == want


@pytest.mark.slow
def test_ranks_with_more_heads_than_others():
    want = tokens(made("llama"), do_sample=False)
    with Session(("cpu",) * 3) as session, parallelize(made("llama"), session=session) as model:
        assert tokens(model, do_sample=False) == want


@pytest.mark.slow
@pytest.mark.parametrize("form", ["inference", "training"])
def test_processes_of_torchrun_run_it_in_step(form):
    want = tokens(made("llama"), do_sample=False)
    for line in lines_of(2, "tests/parallel/inference/batches_script.py", form):
        assert json.loads(line) == [want, "call generate"]
