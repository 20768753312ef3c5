"""Norms in one kernel: only where the module's own code computes the same."""

import copy

import pytest
import torch
from torch import nn

from modular_converter.parallel.engine.inference.fused_norms import fuse_norms


class Written(nn.Module):
    """A root-mean-square norm, written out; the variants differ in one step each."""

    def __init__(self, width, variant=""):
        super().__init__()
        self.weight, self.eps, self.variant = nn.Parameter(torch.randn(width)), 1e-5, variant

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True) if self.variant == "centred" else x
        size = centred.float().pow(2).mean(-1, keepdim=True)
        eps = 0.0 if self.variant == "no epsilon" else self.eps
        scale = 1 + self.weight if self.variant == "one plus" else self.weight
        return scale * (centred * torch.rsqrt(size + eps)).to(x.dtype)


def test_a_norm_that_agrees_is_fused_and_gives_the_same():
    torch.manual_seed(0)
    model = nn.Sequential(Written(32), nn.Linear(32, 32), Written(32))
    fused = copy.deepcopy(model)
    assert fuse_norms(fused) == 2 and type(fused[0]).__name__ == "Written"
    x = torch.randn(4, 32)
    assert torch.allclose(model(x), fused(x), atol=1e-5)
    assert fused[0](x.bfloat16()).dtype == model[0](x.bfloat16()).dtype


@pytest.mark.parametrize("variant", ["centred", "one plus", "no epsilon"])
@pytest.mark.parametrize("first", ["", "other"])
def test_of_one_class_the_instances_that_differ_are_left_alone(variant, first):
    torch.manual_seed(0)
    norms = [Written(32), Written(32, variant), Written(32)]
    model = nn.Sequential(*(norms[1:] if first else norms), nn.Linear(32, 32))
    fused = copy.deepcopy(model)
    assert fuse_norms(fused) == len(model) - 2
    x = torch.randn(4, 32)
    assert torch.allclose(model(x), fused(x), atol=1e-5)


class Scaled(Written):
    """A norm that is off by a factor, as by rounding or by another formula."""

    def __init__(self, width, factor):
        super().__init__(width)
        self.factor = factor

    def forward(self, x):
        return super().forward(x) * self.factor


@pytest.mark.parametrize("error, agrees", [(3e-6, 1), (3e-5, 0)])
def test_rounding_agrees_and_more_does_not(error, agrees):
    assert fuse_norms(nn.Sequential(Scaled(32, 1 + error))) == agrees


class Grouped(Written):
    """Groups of a fixed width: one group is the whole norm."""

    def __init__(self, width, group):
        super().__init__(width)
        self.group = group

    def forward(self, x):
        split = x.unflatten(-1, (-1, self.group))
        scale = torch.rsqrt(split.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * (split * scale).flatten(-2)


def test_a_norm_is_tried_at_its_own_width():
    assert fuse_norms(nn.Sequential(Grouped(48, 48), Grouped(96, 48), Grouped(32, 32))) == 2


class Stated(Written):
    """What it does is told by a value that cannot be hashed."""

    def __init__(self, width, steps):
        super().__init__(width)
        self.steps = steps

    def forward(self, x):
        return super().forward(x) * len(self.steps)


def test_a_configuration_that_cannot_be_compared_is_tried_each_time():
    assert fuse_norms(nn.Sequential(Stated(16, [1]), Stated(16, [1, 2]), Stated(16, [3]))) == 2


class Along(Written):
    """Of two dimensions it is the norm, of three it runs along another."""

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + self.eps)


def test_a_norm_along_another_dimension_is_left_alone():
    assert fuse_norms(nn.Sequential(Along(16))) == 0


class Gated(Written):
    def forward(self, x, gate=None):
        return super().forward(x) if gate is None else super().forward(x * gate)


def test_a_norm_that_can_take_more_than_its_input_does():
    torch.manual_seed(0)
    norm, (x, gate) = Gated(16), torch.randn(2, 3, 16)
    fused = nn.Sequential(copy.deepcopy(norm))
    assert fuse_norms(fused) == 1
    for args, named in (((x,), {}), ((x, gate), {}), ((), {"x": x}), ((x,), {"gate": gate})):
        assert torch.allclose(norm(*args, **named), fused[0](*args, **named), atol=1e-5)


def test_hooks_of_a_norm_run_for_its_calls_alone():
    calls = []
    norm = Written(16)
    norm.register_forward_hook(lambda module, args, result: calls.append(args))
    assert fuse_norms(nn.Sequential(norm)) == 1 and not calls
    norm(torch.randn(2, 16))
    assert len(calls) == 1


def test_modules_with_more_than_a_weight_are_left_alone():
    assert fuse_norms(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Embedding(4, 8), nn.Identity())) == 0


def test_norms_of_the_library():
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    assert fuse_norms(LlamaRMSNorm(16)) == 1
    assert fuse_norms(GemmaRMSNorm(16)) == 0
