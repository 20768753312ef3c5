"""Weights that communicate, in whatever way code computes with them: values and gradients are those of one device."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.on_ranks import check_model_on_threads


class Bare(nn.Module):
    """Bare weights of a pair of products, and a small one that all entries between them are multiplied with."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.bias = nn.Parameter(torch.randn(16, 8)), nn.Parameter(torch.randn(16))
        self.down, self.scale = nn.Parameter(torch.randn(8, 16)), nn.Parameter(torch.randn(4))
        self.other, self.small, self.run = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(8)), run

    def forward(self, x):
        x = torch.tanh(x * 1.5)
        return self.run(self, x)


def heads(x, up):
    return F.linear(x, up).view(*x.shape[:-1], -1, 4)


def out(m, found):
    return F.linear(torch.tanh(found.flatten(-2)), m.down)


IDS = torch.tensor([[0, 15, 7], [8, 3, 12]])
PAIR = "rule up colwise\nrule down rowwise\n"
SCALED = f"{PAIR}rule scale replicated_with_grad_allreduce\n"
BOTH = f"{SCALED}rule other replicated_with_grad_allreduce\n"
# Way -> what the code does, and the plan.
WAYS = {
    "functions": (lambda m, x: F.linear(torch.relu(F.linear(x, m.up)), m.down), PAIR),
    "keywords": (lambda m, x: F.linear(input=torch.relu(F.linear(input=x, weight=m.up)), weight=m.down), PAIR),
    "a matrix turned round": (lambda m, x: torch.relu(x @ m.up.T) @ m.down.mT, PAIR),
    "a matrix turned round by name": (lambda m, x: torch.relu(x @ m.up.t()) @ m.down.transpose(0, 1), PAIR),
    "views": (lambda m, x: torch.relu(x @ m.up.view(-1, 8).T) @ m.down.T, PAIR),
    "a sum with a product": (
        lambda m, x: torch.addmm(m.small, torch.relu(torch.addmm(m.bias, x, m.up.T)), m.down.T), f"{PAIR}rule bias shard\n",
    ),
    "a sum of what is computed from a bias": (  # as under torchrun, where code reads plain tensors of weights without layouts
        lambda m, x: torch.addmm(m.small, torch.relu(torch.addmm(m.bias * 2, x, m.up.T)), m.down.T), f"{PAIR}rule bias shard\n",
    ),
    "a line with what is computed from a bias": (
        lambda m, x: F.linear(torch.relu(F.linear(x, m.up, m.bias * 2)), m.down), f"{PAIR}rule bias shard\n",
    ),
    "a convolution with what is computed from a bias": (
        lambda m, x: torch.relu(F.conv1d(x[..., None], m.up[..., None], m.bias * 2))[..., 0] @ m.down.T, f"{PAIR}rule bias shard\n",
    ),
    "a scaled sum with a product": (
        lambda m, x: torch.addmm(m.small, torch.relu(x @ m.up.T), m.down.T, beta=3, alpha=0.5), PAIR,
    ),
    "a sum with products": (
        lambda m, x: torch.baddbmm(m.small, torch.relu(x @ m.up.T)[None], m.down.T[None], beta=3, alpha=0.5), PAIR,
    ),
    "rows": (lambda m, x: torch.tanh(F.embedding(IDS, m.up)), "rule up embedding_rowwise\n"),
    "rows by name": (lambda m, x: torch.tanh(F.embedding(input=IDS, weight=m.up)), "rule up embedding_rowwise\n"),
    "parts": (
        lambda m, x: torch.relu(F.linear(x, m.up[0:]) + F.linear(x, m.up)) @ m.down.T, PAIR,
    ),
    "packed parts": (
        lambda m, x: torch.relu(torch.cat([F.linear(x, one) for one in m.up.chunk(2)], -1)) @ m.down.T,
        "rule up packed_colwise parts=1:1\nrule down packed_rowwise parts=1:1\n",
    ),
    "a bias": (
        lambda m, x: F.linear(torch.relu(F.linear(x, m.up, m.bias)), m.down), f"{PAIR}rule bias shard\n",
    ),
    "a bias by name": (
        lambda m, x: F.linear(torch.relu(F.linear(x, m.up, bias=m.bias)), m.down), f"{PAIR}rule bias shard\n",
    ),
    "a whole weight": (lambda m, x: out(m, heads(x, m.up) * m.scale), SCALED),
    "a whole weight by name": (lambda m, x: out(m, F.layer_norm(heads(x, m.up), (4,), weight=m.scale)), SCALED),
    "a whole weight in front": (lambda m, x: out(m, torch.mul(m.scale, heads(x, m.up))), SCALED),
    "whole weights in a list": (lambda m, x: out(m, heads(x, m.up) * torch.stack([m.scale, m.other]).sum(0)), BOTH),
    "whole weights in a tuple": (
        lambda m, x: out(m, heads(x, m.up) * torch.cat((m.scale[:2], m.other[2:]))), BOTH,
    ),
    "two whole weights": (lambda m, x: out(m, F.layer_norm(heads(x, m.up), (4,), m.scale, m.other)), BOTH),
    "a whole weight's parts": (
        lambda m, x: out(m, heads(x, m.up) * torch.cat([one.flip(0) for one in m.scale.chunk(2)])), SCALED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_ways_in_which_code_computes_with_weights(way, ranks):
    run, rules = WAYS[way]
    x = {"x": torch.randn(3, 8, generator=torch.Generator().manual_seed(1))}
    verdict = check_model_on_threads(Bare(run), Plan.parse(f"plan x\n{rules}"), x, ranks)
    assert verdict.passed, verdict.reason
