"""Blocks whose modules or outputs are special: latent attention, experts, shared modules, tied heads."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.plans.plan import PlanRule
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from tests.parallel.solve.test_traps import HEADS, HIDDEN, WIDTH, Attention, Stack, proven


class Latent(nn.Module):
    """Keys from a latent that all heads share, and a part of it that goes to every head as it is."""

    def __init__(self):
        super().__init__()
        self.rank, self.tail = 12, WIDTH
        self.q, self.down = nn.Linear(HIDDEN, HEADS * 2 * WIDTH), nn.Linear(HIDDEN, self.rank + self.tail)
        self.latent_norm, self.up = nn.LayerNorm(self.rank), nn.Linear(self.rank, HEADS * 2 * WIDTH)
        self.o = nn.Linear(HEADS * WIDTH, HIDDEN)

    def forward(self, x):
        shape = (*x.shape[:2], -1, 2 * WIDTH)
        q = self.q(x).view(shape).transpose(1, 2)
        latent, shared = self.down(x).split([self.rank, self.tail], -1)
        k, v = self.up(self.latent_norm(latent)).view(shape).transpose(1, 2).split(WIDTH, -1)
        k = torch.cat([k, shared[:, None].expand(-1, k.shape[1], -1, -1)], -1)
        return self.o((torch.softmax(q @ k.mT, -1) @ v).transpose(1, 2).flatten(2))


def test_latent_attention_sums_the_gradient_of_the_shared_part_only():
    plan, rules = proven(Stack(Latent))
    assert rules["layers.*.down"] == PlanRule("layers.*.down", "mla_kv_a_proj", None, ("rank", "tail"))
    assert rules["layers.*.q"].style == rules["layers.*.up"].style == "colwise"
    less = dataclasses.replace(plan, rules=tuple(rule for rule in plan.rules if rule.style != "mla_kv_a_proj"))
    model = Stack(Latent).eval()
    verdict = check_model_on_threads(model, less, {"x": torch.randn(2, 6, HIDDEN)}, 2)
    assert not verdict.passed and "gradient" in verdict.reason


def test_rotation_by_complex_numbers_keeps_the_heads():
    class Rotated(Attention):
        def project(self, x, other):
            q, k, v = super().project(x, other)
            turn = torch.polar(torch.ones(x.shape[1], WIDTH // 2), torch.arange(x.shape[1])[:, None] * torch.ones(1))
            q, k = (
                torch.view_as_real(torch.view_as_complex(t.unflatten(-1, (-1, 2))) * turn[:, None]).flatten(3)
                for t in (q, k)
            )
            return q, k, v

    _, rules = proven(Stack(Rotated))
    assert {rules[f"layers.*.{name}"].style for name in "qkv"} == {"colwise"}


class Experts(nn.Module):
    """Stacked experts, each token to all of them; ``normed`` puts a norm behind the second product."""

    def __init__(self, normed=False):
        super().__init__()
        torch.manual_seed(1)
        self.up, self.down = nn.Parameter(torch.randn(4, HIDDEN, 48) / 6), nn.Parameter(torch.randn(4, 48, HIDDEN) / 7)
        self.normed = normed

    def forward(self, x):
        found = torch.bmm(F.silu(torch.bmm(x.flatten(0, 1).expand(4, -1, -1), self.up)), self.down)
        found = F.layer_norm(found, (HIDDEN,)) if self.normed else found
        return found.sum(0).view(x.shape)


class Mixture(nn.Module):
    def __init__(self, normed=False):
        super().__init__()
        self.experts = Experts(normed)

    def forward(self, x):
        return self.experts(x)


def test_experts_are_summed_once_unless_something_behind_them_is_not_linear():
    _, rules = proven(Stack(Mixture))
    assert rules["layers.*.experts"].style == "moe_tp_experts"
    _, rules = proven(Stack(lambda: Mixture(normed=True)))
    assert "layers.*.experts" not in rules
    assert rules["layers.*.experts.down"].style == "rowwise"


def test_a_module_that_serves_whole_and_sharded_tensors_gets_no_rule_for_its_output():
    class Shared(Attention):
        """One norm module for the heads of queries, which are sharded, and of one key that all share."""

        def __init__(self):
            super().__init__(groups=1, norm="head")

        def project(self, x, other):
            q, k, v = super().project(x, other)
            return q, self.norm(k), v

    _, rules = proven(Stack(Shared))
    assert "layers.*.norm" not in rules


@pytest.mark.parametrize("head_first", [True, False])
def test_a_tied_head_is_told_from_its_embedding_by_what_it_does(head_first):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            if head_first:
                self.head = nn.Linear(HIDDEN, 64)
            self.words, self.norm = nn.Embedding(64, HIDDEN), nn.LayerNorm(HIDDEN)
            if not head_first:
                self.head = nn.Linear(HIDDEN, 64)
            self.head.weight = self.words.weight

        def forward(self, ids):
            return self.head(self.norm(self.words(ids)))

    _, rules = proven(Tied(), ids=torch.arange(12).view(2, 6) * 5)
    assert rules["words"].style == "embedding_rowwise" and rules["head"].style == "colwise_gather_output"
