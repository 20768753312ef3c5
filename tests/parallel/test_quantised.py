"""Models that torchao has quantised to int8: their outputs on ranks are those of the quantised model in one process."""

import pytest
import torch


pytest.importorskip("transformers")
pytest.importorskip("torchao")
from torchao.quantization import (  # noqa: E402
    Int8DynamicActivationInt8WeightConfig,
    Int8Tensor,
    Int8WeightOnlyConfig,
    PerGroup,
    PerRow,
    PerTensor,
    quantize_,
)
from transformers import LlamaConfig, LlamaForCausalLM, TorchAoConfig  # noqa: E402

from modular_converter.parallel import parallelize  # noqa: E402
from modular_converter.parallel.engine.remote import place_on_ranks  # noqa: E402
from modular_converter.parallel.errors import ApplyError, PlanError, RankError  # noqa: E402
from modular_converter.parallel.int8 import (  # noqa: E402  # noqa: E402
    Int8Linear,
    become_int8,
    pack_layers,
    unpack_layers,
)
from modular_converter.parallel.ranks.session import Session  # noqa: E402


IDS = torch.arange(3, 17).view(2, 7)
# Three key/value heads: two ranks have unequal shares.
SIZES = {"hidden_size": 48, "intermediate_size": 80, "num_attention_heads": 6, "num_key_value_heads": 3}


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def tokens(model):
    return model.generate(IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=5, do_sample=False)


def furthest(one, other):
    return float((one - other).abs().max() / other.abs().max())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("plain")
    config = LlamaConfig(**SIZES, vocab_size=51, num_hidden_layers=2, pad_token_id=0, attention_bias=True)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2)
    model.save_pretrained(path)
    return path


def quantised(folder, **how):
    config = TorchAoConfig(Int8WeightOnlyConfig(**how))
    return LlamaForCausalLM.from_pretrained(folder, quantization_config=config)


def test_plain_layers_compute_what_torchao_computes(folder):
    for how in ({}, {"granularity": PerTensor()}):
        model = quantised(folder, **how)
        before = logits(model)
        unpack_layers(model)
        layers = [module for module in model.modules() if isinstance(module, Int8Linear)]
        assert len(layers) == 14 and torch.equal(logits(model), before)
        pack_layers(model)
        assert torch.equal(logits(model), before)
        assert isinstance(model.model.layers[0].mlp.up_proj.weight, Int8Tensor)


def test_outputs_have_the_type_of_inputs():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 4)).to(torch.bfloat16)
    layer[0].bias = torch.nn.Parameter(torch.randn(4))
    quantize_(layer, Int8WeightOnlyConfig())
    rows = torch.randn(3, 8, dtype=torch.bfloat16)
    before = layer(rows)
    unpack_layers(layer)
    assert layer(rows).dtype == before.dtype == torch.bfloat16 and torch.equal(layer(rows), before)


def test_an_input_of_whole_numbers_is_refused():
    """A model's code may turn inputs into the type of a weight; the product would be zeros everywhere, and agree."""
    layer = torch.nn.Linear(8, 4)
    become_int8(layer, torch.ones(4, 8, dtype=torch.int8), torch.full((4,), 0.01))
    with pytest.raises(ApplyError, match="input of torch.int8: the model's code"):
        layer(torch.ones(3, 8).to(layer.weight.dtype))


def test_ranks_compute_what_the_quantised_model_computes(folder, ranks, tmp_path):
    model = quantised(folder)
    before, said, own = logits(model), tokens(model), model.state_dict()
    weights = {name: value.dequantize() if isinstance(value, Int8Tensor) else value for name, value in own.items()}
    assert furthest(logits(LlamaForCausalLM.from_pretrained(folder)), before) > 1e-3
    parallelize(model, session=ranks)
    assert furthest(logits(model), before) < 1e-5 and torch.equal(tokens(model), said)
    assert model.get_parameter("model.layers.0.mlp.down_proj.weight").dtype == torch.int8
    state = model.state_dict()
    assert state.keys() == weights.keys()
    assert sum(isinstance(value, Int8Tensor) for value in state.values()) == 14
    assert all(
        torch.equal(value.dequantize() if isinstance(value, Int8Tensor) else value, weights[name])
        for name, value in state.items()
    )
    model.save_pretrained(tmp_path)
    assert torch.equal(logits(LlamaForCausalLM.from_pretrained(tmp_path)), before)
    model.cpu()
    assert torch.equal(logits(model), before)
    assert type(model.model.layers[0].mlp.up_proj) is torch.nn.Linear


@pytest.mark.slow
def test_three_ranks_compute_what_the_quantised_model_computes(folder):
    model = quantised(folder)
    before, said = logits(model), tokens(model)
    with Session(("cpu", "cpu", "cpu"), init_method="forkserver") as three:
        parallelize(model, session=three, probe=False)
        assert furthest(logits(model), before) < 1e-5 and torch.equal(tokens(model), said)


@pytest.mark.parametrize(
    "config, said",
    [
        (Int8DynamicActivationInt8WeightConfig(), "its inputs are quantised"),
        (Int8WeightOnlyConfig(granularity=PerGroup(16)), "scales for blocks of 1 x 16 entries"),
        (Int8WeightOnlyConfig(granularity=PerRow(dim=0)), "scales for blocks of 48 x 1 entries"),  # as many as rows
    ],
)
def test_other_forms_are_refused(folder, config, said):
    model = LlamaForCausalLM.from_pretrained(folder)
    quantize_(model, config)
    before = logits(model)
    with pytest.raises(
        ApplyError, match=rf"^model.layers.0.self_attn.q_proj.weight: .*torchao.*{said}.*Int8WeightOnly"
    ):
        parallelize(model, num_gpus=2, device="cpu")
    assert torch.equal(logits(model), before)


def test_a_failure_leaves_the_model_as_it_was(folder, ranks):
    model = quantised(folder)
    before = logits(model)
    with pytest.raises(ApplyError, match="dtype= is for weights that are not quantised"):
        parallelize(model, dtype=torch.bfloat16, session=ranks)
    with pytest.raises(PlanError, match="no_such_layer"):
        parallelize(model, plan={"no_such_layer": "colwise"}, session=ranks)
    assert torch.equal(logits(model), before)
    assert isinstance(model.model.layers[0].mlp.up_proj.weight, Int8Tensor)


def test_a_failure_that_loses_weights_is_told(folder, ranks, monkeypatch):
    """Packing weights that are no more would raise an error of its own."""

    def lose(given, session, ready):
        for tensor in ready.tensors:
            tensor.data = tensor.new_empty(0)
        raise RankError("rank 1 has ended")

    monkeypatch.setattr(place_on_ranks, "_place", lose)
    model = quantised(folder)
    with pytest.raises(RankError, match="rank 1 has ended"):
        parallelize(model, session=ranks, probe=False)
    with pytest.raises(ApplyError, match="lost weights"):
        parallelize(model, session=ranks)
