"""The GELU in one kernel: only where the module's own code computes the same."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import ACT2FN

from modular_converter.parallel.inference.fused import fuse_activations, unfuse


class Written(nn.Module):
    """GPT-2's activation, written out."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Scaled(Written):
    """The same, off by a factor."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * super().forward(x)


class Clipped(Written):
    """Other values far away."""

    def forward(self, x):
        return super().forward(x).clamp(max=50.0)


class Grown(Written):
    def forward(self, x):
        return super().forward(x).float()


class Summed(Written):
    """Of one dimension it is the function, of two it is not."""

    def forward(self, x):
        return super().forward(x) * (x.shape[0] if x.dim() > 1 else 1)


@pytest.mark.parametrize("kind, room", [(torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)])
def test_a_module_that_agrees_is_fused_and_rounds_less(kind, room):
    torch.manual_seed(0)
    model = nn.Sequential(Written(), nn.Linear(8, 8), Scaled(1.0), Scaled(2.0))
    fused = copy.deepcopy(model)
    assert fuse_activations(fused) == 2 and type(fused[0]).__name__ == "Written"
    x = (torch.randn(4, 8) * 3).to(kind)
    assert fused[0](x).dtype == kind
    assert torch.allclose(fused[0](x), model[0](x), atol=room, rtol=room)
    exact = F.gelu(x.double(), approximate="tanh")
    assert (fused[0](x).double() - exact).abs().max() <= (model[0](x).double() - exact).abs().max() + 1e-6
    assert torch.equal(fused[3](x), model[3](x))


@pytest.mark.parametrize("module", [Scaled(1.0001), Clipped(), Grown(), Summed(), nn.GELU("tanh"), nn.Identity()])
def test_other_modules_are_left_alone(module):
    assert fuse_activations(nn.Sequential(module)) == 0


def test_of_the_library_those_of_this_formula_are_fused():
    fused = {name for name in ACT2FN if fuse_activations(nn.Sequential(ACT2FN[name]))}
    assert (
        {"gelu_new", "gelu_fast"}
        <= fused
        <= {"gelu_new", "gelu_fast", "gelu_accurate", "gelu_python_tanh", "gelu_pytorch_tanh"}
    )


def test_a_module_of_which_an_attribute_changes_has_its_own_forward_again():
    x = torch.randn(4)
    for change in (lambda one: setattr(one, "factor", 2.0), lambda one: (vars(one).update(factor=2.0), unfuse(one))):
        module = Scaled(1.0)
        assert fuse_activations(module) == 1
        change(module)
        assert torch.allclose(module(x), 2 * F.gelu(x, approximate="tanh"), atol=1e-6)


def test_integers_and_named_inputs_are_the_modules_own():
    module = Written()
    assert fuse_activations(module) == 1
    assert torch.allclose(module(torch.arange(3)), F.gelu(torch.arange(3.0), approximate="tanh"), atol=1e-6)
    assert torch.allclose(module(x=torch.ones(2)), F.gelu(torch.ones(2), approximate="tanh"), atol=1e-6)
