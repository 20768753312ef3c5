"""Experts in fewer kernels: only where the module's own grouped form computes the same."""

import copy
import logging
from types import SimpleNamespace

import pytest
import torch
from transformers import MixtralConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssConfig, GptOssExperts
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

from modular_converter.parallel.inference import experts
from modular_converter.parallel.inference.experts import combine_kernel, combined, fuse_experts
from modular_converter.parallel.shard.forwards import swap_forward


class Doubled(torch.nn.Module):
    """Put before a module's class, as the sum of its output is."""

    def forward(self, *args):
        return 2 * super().forward(*args)


def made(number=6, kind=torch.float32, own=MixtralExperts):
    config = MixtralConfig(hidden_size=16, intermediate_size=32, num_local_experts=number)
    config._experts_implementation = "grouped_mm"
    torch.manual_seed(0)
    module = own(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module.to(kind).eval()


def given(number, kind=torch.float32, tokens=9):
    torch.manual_seed(1)
    index = torch.rand(tokens, number).argsort(-1)[:, :2]
    return torch.randn(tokens, 16).to(kind), index, torch.rand(tokens, 2).to(kind)


@pytest.fixture
def counted(monkeypatch):
    """The calls of the form of fewer kernels."""
    calls, own = [], experts.grouped

    def count(*args):
        calls.append(args)
        return own(*args)

    monkeypatch.setattr(experts, "grouped", count)
    return calls


@pytest.mark.parametrize("number", [6, 256, 300])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_experts_that_agree_are_fused(number, kind, counted):
    one = made(number, kind)
    fused = copy.deepcopy(one)
    assert fuse_experts(fused) == 1 and len(counted) == 1  # the trial
    with torch.no_grad():
        for tokens in (9, 1, 0):
            args = given(number, kind, tokens)
            assert torch.allclose(fused(*args), one(*args), rtol=1e-2, atol=1e-2 if kind == torch.bfloat16 else 1e-4)
    assert len(counted) == 4


def test_the_module_keeps_its_own_forward_otherwise(counted):
    fused, one = made(), made()
    fuse_experts(fused)
    counted.clear()
    args = given(6)
    assert torch.equal(fused(*args), one(*args))  # with gradients
    with torch.no_grad():
        fused.config._experts_implementation = "batched_mm"
        fused(*args)
        fused.config._experts_implementation = "grouped_mm"
        fused(args[0], top_k_index=args[1], top_k_weights=args[2])
        assert not counted
        fused(*args)
        assert len(counted) == 1
        fused.has_post_expert_norm = False  # set by code that may mean something by it
        fused(*args)
        assert len(counted) == 1


def test_a_token_of_compiled_code_reads_the_weights_where_they_are(monkeypatch):
    one, calls = made(), []
    fused, own = copy.deepcopy(one), experts.summed_products
    fuse_experts(fused)
    monkeypatch.setattr(experts, "summed_products", lambda *args: (calls.append(args), own(*args))[1])
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    one.config._experts_implementation = "batched_mm"
    fused.config._experts_implementation = "grouped_mm"  # a long forward
    with torch.no_grad():
        fused(*given(6))
        assert not calls
        fused.config._experts_implementation = "batched_mm"
        for tokens in (9, 1):
            assert torch.allclose(fused(*given(6, tokens=tokens)), one(*given(6, tokens=tokens)), atol=1e-4)
    assert len(calls) == 2


@pytest.mark.slow
def test_compiled_experts(counted):
    one = made()
    fused = copy.deepcopy(one)
    fuse_experts(fused)
    one.config._experts_implementation = fused.config._experts_implementation = "batched_mm"
    with torch.inference_mode():
        for tokens in (1, 9):
            got = torch.compile(fused, backend="eager", fullgraph=True)(*given(6, tokens=tokens))
            assert torch.allclose(got, one(*given(6, tokens=tokens)), atol=1e-4)
    assert len(counted) == 1  # the trial


def test_a_sum_of_the_output_comes_after_it(counted):
    one = made()
    both = copy.deepcopy(one)
    fuse_experts(both)
    swap_forward(both, Doubled, outermost=True)
    with torch.no_grad():
        assert torch.allclose(both(*given(6)), 2 * one(*given(6)), atol=1e-4)
    assert len(counted) == 2


class Halved(MixtralExperts):
    """Its grouped form is not the library's."""

    def forward(self, *args):
        return super().forward(*args) / 2


def test_other_experts_are_left_alone():
    assert fuse_experts(made(own=Halved)) == 0
    loop = made()
    loop.config._experts_implementation = "eager"
    assert fuse_experts(loop) == 0
    elsewhere = made()
    elsewhere._is_expert_parallel = True
    assert fuse_experts(elsewhere) == 0
    config = GptOssConfig(hidden_size=16, intermediate_size=32, num_local_experts=4)
    config._experts_implementation = "grouped_mm"
    assert fuse_experts(GptOssExperts(config)) == 0  # with biases


class Refusing(MixtralExperts):
    def forward(self, *args):
        raise ValueError("not these")


def test_experts_that_refuse_the_trial_are_left_alone_with_a_word(caplog):
    with caplog.at_level(logging.INFO, "modular_converter"):
        assert fuse_experts(made(own=Refusing)) == 0
    assert "Refusing keeps its own forward: ValueError: not these" in caplog.text


@torch.no_grad()
def test_what_may_be_computed_in_fewer_kernels():
    fused = made()
    fuse_experts(fused)
    hidden, index, weights = given(6)
    assert fused._may_be_fused(hidden, index, weights)
    half = hidden.bfloat16()
    for other in ((half, index, weights), (hidden[:-1], index, weights), (hidden, index, weights[:, :1])):
        assert not fused._may_be_fused(*other)
    assert not fused._may_be_fused(hidden, index, weights.double())
    fused.to(torch.bfloat16)
    assert fused._may_be_fused(half, index, weights) and fused._may_be_fused(half, index, weights.bfloat16())
    fused.down_proj = None  # one of the two is in another form
    assert not fused._may_be_fused(half, index, weights)


def test_the_kernel_is_made_for_gpus_with_a_compiler_alone(monkeypatch):
    kinds = torch.float32, torch.float32
    made_without_data = combine_kernel(torch.device("meta"), *kinds)
    rows, weights = torch.empty(12, 5, device="meta"), torch.empty(4, 3, device="meta")
    assert made_without_data(rows, None, weights).shape == (4, 5)
    own = combine_kernel.__wrapped__
    monkeypatch.setattr(experts, "triton", None)
    assert own(torch.device("cuda"), *kinds) is combined
    monkeypatch.setattr(experts, "triton", SimpleNamespace())
    assert own(torch.device("cpu"), *kinds) is combined


def test_the_weighted_sum():
    rows, places = torch.tensor([[1.0], [2.0], [4.0], [8.0]]), torch.tensor([3, 0, 1, 2])
    weights = torch.tensor([[1.0, 0.5], [0.25, 0.0]])
    assert combined(rows, places, weights).tolist() == [[8.5], [0.5]]
