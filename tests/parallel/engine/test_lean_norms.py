"""Norms in one kernel: only where the module's own code computes the same."""

import copy

import pytest
import torch
from torch import nn

from modular_converter.parallel.engine.lean_norms import fuse_norms


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


# A class is judged once: each variant needs one of its own.
@pytest.mark.parametrize("variant", ["centred", "one plus", "no epsilon"])
def test_a_norm_that_differs_is_left_alone(variant):
    other = type("Other", (Written,), {})
    assert fuse_norms(nn.Sequential(other(32, variant))) == 0


def test_modules_with_more_than_a_weight_are_left_alone():
    assert fuse_norms(nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.Embedding(4, 8), nn.Identity())) == 0


def test_norms_of_the_library():
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    assert fuse_norms(LlamaRMSNorm(16)) == 1
    assert fuse_norms(GemmaRMSNorm(16)) == 0
