"""Small blocks with the traps that have shipped in plans: derived from their own operations, and proven."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from modular_converter.parallel.plans.plan import PlanRule
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


HIDDEN, HEADS, WIDTH = 32, 4, 8


class Attention(nn.Module):
    """Attention with switches for the traps."""

    def __init__(self, layout="separate", groups=HEADS, norm="", dropout=0.0, heads=HEADS):
        super().__init__()
        self.layout, self.groups, self.heads = layout, groups, heads
        self.width = HIDDEN // heads
        self.norm_kind, self.dropout = norm, dropout
        if layout == "separate":
            self.q = nn.Linear(HIDDEN, heads * self.width)
            self.k, self.v = (nn.Linear(HIDDEN, groups * self.width) for _ in range(2))
        else:
            self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        if norm:
            self.norm = nn.LayerNorm(self.width if norm == "head" else HIDDEN)
        self.o = nn.Linear(HIDDEN, HIDDEN)

    def project(self, x, other):
        batch, length, _ = x.shape
        if self.layout == "contiguous":
            return [t.view(batch, length, -1, self.width) for t in self.qkv(x).chunk(3, -1)]
        if self.layout == "interleaved":
            return self.qkv(x).view(batch, length, -1, 3 * self.width).chunk(3, -1)
        if self.layout == "stacked":
            return self.qkv(x).view(batch, length, 3, -1, self.width).unbind(2)
        q = self.q(x)
        q = self.norm(q) if self.norm_kind == "full" else q
        q = q.view(batch, length, -1, self.width)
        q = self.norm(q) if self.norm_kind == "head" else q
        shape = (*other.shape[:2], -1, self.width)
        return [q, self.k(other).view(shape), self.v(other).view(shape)]

    def forward(self, x, other=None):
        q, k, v = (t.transpose(1, 2) for t in self.project(x, x if other is None else other))
        if self.groups != self.heads:
            times = self.heads // self.groups
            k, v = (t[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2) for t in (k, v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / self.width**0.5, -1)
        weights = F.dropout(weights, self.dropout, self.training)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class GatedUp(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up, self.down = nn.Linear(HIDDEN, 96), nn.Linear(48, HIDDEN)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Stack(nn.Module):
    """Layers with residuals between norms, so that the hidden axis is whole as in any real model."""

    def __init__(self, block, twice=False):
        super().__init__()
        self.layers = nn.ModuleList([block() for _ in range(2)])
        self.norm, self.twice = nn.LayerNorm(HIDDEN), twice

    def forward(self, x):
        for layer in [*self.layers, *(self.layers if self.twice else [])]:
            x = x + layer(self.norm(x))
        return self.norm(x)


def proven(model, **inputs):
    torch.manual_seed(5)
    inputs = inputs or {"x": torch.randn(2, 6, HIDDEN)}
    model.eval()
    plan = plan_of_trace(record(model, inputs, "trap"))
    for ranks in (2, 4):
        verdict = check_model_on_threads(model, plan, inputs, ranks)
        assert verdict.passed, (str(plan), verdict)
    return plan, {rule.pattern: rule for rule in plan.rules}


@pytest.mark.parametrize(
    "layout, style, parts",
    [
        ("contiguous", "packed_colwise", (1, 1, 1)),
        ("interleaved", "colwise", ()),
        ("stacked", "packed_colwise", (1, 1, 1)),
    ],
)
def test_three_layouts_of_fused_projections(layout, style, parts):
    _, rules = proven(Stack(lambda: Attention(layout)))
    assert rules["layers.*.qkv"] == PlanRule("layers.*.qkv", style, None, parts)
    assert rules["layers.*.o"].style == "rowwise"


def test_a_norm_over_the_full_width_forbids_column_projections():
    plan, rules = proven(Stack(lambda: Attention(norm="full")))
    assert rules["layers.*.q"].style == "colwise_gather_output"
    wrong = dataclasses.replace(
        plan, rules=tuple(PlanRule(f"layers.*.{n}", "colwise") for n in "qkv") + (PlanRule("layers.*.o", "rowwise"),)
    )
    model = Stack(lambda: Attention(norm="full")).eval()
    assert not check_model_on_threads(model, wrong, {"x": torch.randn(2, 6, HIDDEN)}, 2).passed


def test_a_norm_per_head_keeps_column_projections():
    _, rules = proven(Stack(lambda: Attention(norm="head")))
    assert rules["layers.*.q"].style == "colwise"


def test_heads_that_do_not_divide_are_gathered():
    plan, rules = proven(Stack(lambda: Attention(heads=2, groups=2)))
    assert rules["layers.*.q"].style == "colwise_gather_output"


def test_multi_query_keys_are_never_column_sharded_alone():
    plan, rules = proven(Stack(lambda: Attention(groups=1)))
    assert all(rules[f"layers.*.{name}"].style != "colwise" for name in "kv" if f"layers.*.{name}" in rules)


def test_gate_and_up_fused_is_packed():
    _, rules = proven(Stack(GatedUp))
    assert rules["layers.*.gate_up"].parts == (1, 1)
    assert rules["layers.*.down"].style == "rowwise"


def test_fused_gate_up_as_plain_colwise_is_refused():
    model, inputs = Stack(GatedUp).eval(), {"x": torch.randn(2, 6, HIDDEN)}
    plan = plan_of_trace(record(model, inputs, "trap"))
    wrong = dataclasses.replace(
        plan, rules=tuple(PlanRule(r.pattern, "colwise") if r.parts else r for r in plan.rules)
    )
    assert not check_model_on_threads(model, wrong, inputs, 2).passed


def test_two_linears_without_a_non_linearity():
    _, rules = proven(Stack(lambda: nn.Sequential(nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN))))
    assert [rules[f"layers.*.{i}"].style for i in (0, 1)] == ["colwise", "rowwise"]


def test_a_layer_used_twice():
    _, rules = proven(Stack(Attention, twice=True))
    assert rules["layers.*.o"].style == "rowwise"


def test_dropout_does_not_hide_the_axes():
    _, rules = proven(Stack(lambda: Attention(dropout=0.1)))
    assert rules["layers.*.q"].style == "colwise"


def test_cross_attention():
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.norm = Attention(), nn.LayerNorm(HIDDEN)

        def forward(self, x, other):
            return self.norm(x + self.attention(self.norm(x), self.norm(other)))

    torch.manual_seed(1)
    _, rules = proven(Cross(), x=torch.randn(2, 6, HIDDEN), other=torch.randn(2, 5, HIDDEN))
    assert rules["attention.k"].style == "colwise"


def test_a_head_tied_to_the_embedding():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.body = nn.Embedding(64, HIDDEN), Stack(GatedUp)
            self.head = nn.Linear(HIDDEN, 64, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.body(self.embed(ids)))

    _, rules = proven(Tied(), ids=torch.randint(0, 64, (2, 6)))
    assert rules["embed"].style == "embedding_rowwise"
    assert rules["head"].style == "colwise_gather_output"


def test_a_depthwise_convolution_between_projections():
    class Convolved(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(HIDDEN, 64), nn.Linear(64, HIDDEN)
            self.conv = nn.Conv1d(64, 64, 3, padding=1, groups=64)

        def forward(self, x):
            return self.down(F.silu(self.conv(self.up(x).transpose(1, 2))).transpose(1, 2))

    plan, rules = proven(Stack(Convolved))
    assert rules["layers.*.up"].style == "colwise"
    assert plan.attributes == ("layers.*.conv:groups",)


def test_transposed_convolutions_add_their_bias_once():
    class Wave(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose1d(HIDDEN, 64, 4, stride=2, padding=1)
            self.down = nn.ConvTranspose1d(64, HIDDEN, 3, padding=1)

        def forward(self, x):
            return self.down(F.silu(self.up(x.transpose(1, 2))))[..., : x.shape[1]].transpose(1, 2)

    _, rules = proven(Stack(Wave))
    assert rules["layers.*.up"].style == "colwise"
    assert (rules["layers.*.down"].style, rules["layers.*.down"].dim) == ("rowwise", 0)


def test_a_slice_longer_than_its_axis_is_the_whole_axis():
    class Tail(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(HIDDEN, 48), nn.Linear(48, HIDDEN)

        def forward(self, x):
            return self.down(F.gelu(self.up(x[:, -512:])))

    plan, _ = proven(Stack(Tail))
    assert {rule.style for rule in plan.rules} == {"colwise", "rowwise"}


def test_a_relative_shift_keeps_the_heads():
    class Shifted(Attention):
        """Scores of which the last two axes are viewed the other way round, as in relative attention."""

        def forward(self, x, other=None):
            q, k, v = (t.transpose(1, 2) for t in self.project(x, x))
            scores = q @ k.transpose(-1, -2)
            batch, heads, rows, columns = scores.shape
            shifted = F.pad(scores, (1, 0)).reshape(batch, heads, columns + 1, rows)[:, :, 1:]
            scores = scores + shifted.reshape(batch, heads, rows, columns)
            return self.o((torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2))

    plan, _ = proven(Stack(Shifted))
    assert {rule.pattern.rpartition(".")[2] for rule in plan.rules if rule.style == "colwise"} == {"q", "k", "v"}
