"""The reason for whole weights is named with its line and a cure, if other code would cure it."""

import pathlib

import pytest
import torch
from torch import nn

from modular_converter.parallel.solve.choose import hindrances
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


class Block(nn.Module):
    """A pair of layers; ``between`` is what the code does with the axis between them."""

    def __init__(self, between, width=32):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(16, width), nn.Linear(width, 16), nn.LayerNorm(16)
        self.heads, self.half, self.width, self.between = 8, 16, 4, between
        self.register_buffer("slopes", torch.ones(width))

    def forward(self, x):
        return x + self.down(self.between(self, torch.relu(self.up(self.norm(x)))))


class Layers(nn.Module):
    def __init__(self, between, width=32):
        super().__init__()
        self.layers, self.norm = nn.ModuleList([Block(between, width) for _ in range(2)]), nn.LayerNorm(16)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def found(between, width=32):
    torch.manual_seed(0)
    trace = record(Layers(between, width), {"x": torch.randn(2, 5, 16)}, "layers")
    return hindrances(trace, plan_of_trace(trace))


def halves_joined(x):
    return torch.cat([x[..., 2:], x[..., :2]], -1)


def in_groups(x):
    """A group norm whose groups can be shared out."""
    groups = x.unflatten(-1, (-1, 8))
    groups = groups - groups.mean((1, 3), keepdim=True)
    return (groups * (groups.pow(2).mean((1, 3), keepdim=True) + 1e-5).rsqrt()).flatten(2)


# What the code does -> the reason, the advice, and the code that it asks for.
CURABLE = {
    "view": (
        lambda m, x: x.view(2, 5, 8, 4).flatten(2), "a size in a view in layers.0 is the number 8", "write -1 for this size",
        lambda m, x: x.view(2, 5, -1, 4).flatten(2),
    ),
    "split": (
        lambda m, x: torch.cat(x.split(16, -1), -1), "a split size in layers.0 is the number 16", "write chunk",
        lambda m, x: torch.cat(x.chunk(2, -1), -1),
    ),
    "slice": (
        lambda m, x: torch.cat([x[..., :16], x[..., 16:]], -1), "a slice border in layers.0 is the number 16", "compute the borders",
        lambda m, x: torch.cat([x[..., : m.half], x[..., m.half :]], -1),
    ),
    "across": (
        lambda m, x: halves_joined(x.view(2, 5, m.heads, 4).flatten(2)), "a slice that cuts across the factors of an axis",
        "view the axis as heads", lambda m, x: halves_joined(x.view(2, 5, m.heads, 4)).flatten(2),
    ),
    "buffer": (
        lambda m, x: x * m.slopes, "a buffer: layers.0.slopes", "make it a parameter", lambda m, x: x * 1.0,
    ),
    "mixed": (
        lambda m, x: x.view(2, m.heads, -1).reshape(2, 5, -1), "a view that mixes axes", "view the axis as heads",
        lambda m, x: x.view(2, 5, m.heads, 4).flatten(2),
    ),
    "rows": (
        lambda m, x: x[..., torch.arange(32)], "rows are looked up in it", "take the part with a slice", lambda m, x: x[..., :],
    ),
    "repeat": (
        lambda m, x: x * m.norm.weight[:1].repeat(32), "a repeat count in layers.0 is the number 32", "compute this count",
        lambda m, x: x * m.norm.weight[:1],
    ),
    "norm": (
        lambda m, x: nn.functional.group_norm(x.transpose(1, 2), 4).transpose(1, 2), "a norm over groups of channels",
        "nn.GroupNorm counts its groups", lambda m, x: in_groups(x),
    ),
    "made": (
        lambda m, x: x * torch.ones(32), "a size of ", "compute this size", lambda m, x: x * torch.ones(x.shape[-1]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", CURABLE)
def test_what_other_code_would_cure_is_said_once_for_all_layers(way, monkeypatch):
    monkeypatch.chdir(pathlib.Path(__file__).parent)
    between, reason, advice, cured = CURABLE[way]
    hindrance, *others = found(between)
    assert all("does not divide by" in other.reason for other in others)
    assert hindrance.reason.startswith(reason) and hindrance.advice.startswith(advice)
    assert "layers.*.up.weight" in hindrance.weights and len(set(hindrance.weights)) == len(hindrance.weights)
    path, number = hindrance.site.split(":")
    line = halves_joined.__code__.co_firstlineno + 1 if way == "across" else between.__code__.co_firstlineno
    assert (path, int(number)) == ("test_hindrances.py", line)
    weights = ", ".join(hindrance.weights)
    assert str(hindrance) == f"{weights}: {hindrance.reason} ({hindrance.site}); {hindrance.advice}"
    assert found(cured) == []


def test_what_no_other_code_would_cure_is_not_said():
    """The order of the entries is part of the arithmetic, also where a size beside it is a number."""
    assert found(lambda m, x: x.roll(1, -1)) == []
    assert found(lambda m, x: x.view(2, 5, 8, 4).roll(1, 2).roll(1, 3).flatten(2)) == []


def test_lengths_of_the_small_instance_have_no_line():
    (hindrance,) = found(lambda m, x: x, width=30)
    assert hindrance.reason == "its length 30 does not divide by 4" and hindrance.site == ""
    assert f"divide by 4; {hindrance.advice}" in str(hindrance) and "give other sizes" in hindrance.advice


def test_rows_of_a_table_are_looked_up_anyway():
    class Numbered(Block):
        def __init__(self):
            super().__init__(lambda m, x: x)
            self.table = nn.Embedding(8, 16)

        def forward(self, x):
            return super().forward(x + self.table(torch.arange(5)))

    model = nn.Sequential(Numbered(), Numbered(), nn.LayerNorm(16))
    trace = record(model, {"input": torch.randn(2, 5, 16)}, "numbered")
    plan = plan_of_trace(trace)
    assert {rule.pattern for rule in plan.rules} == {"*.up", "*.down"} and hindrances(trace, plan) == []


def test_attention_of_torch_is_said_as_such():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm = nn.MultiheadAttention(16, 4, batch_first=True), nn.LayerNorm(16)

        def forward(self, x):
            return self.norm(x + self.inner(x, x, x, need_weights=False)[0])

    trace = record(nn.Sequential(Attention(), Attention()), {"input": torch.randn(2, 5, 16)}, "of_torch")
    (hindrance,) = hindrances(trace, plan_of_trace(trace))
    assert hindrance.reason == "attention of torch" and "nn.Linear layers" in hindrance.advice
    assert set(hindrance.weights) == {"*.inner.in_proj_weight", "*.inner.out_proj.weight"}


def test_matrices_in_numbered_layers_alone_are_looked_at():
    torch.manual_seed(0)
    between = CURABLE["view"][0]
    trace = record(Block(between), {"x": torch.randn(2, 5, 16)}, "block")
    assert hindrances(trace, plan_of_trace(trace)) == []
    trace = record(Layers(between), {"x": torch.randn(2, 5, 16)}, "layers")
    gathered, whole = plan_of_trace(trace), plan_of_trace(trace, gather=False)
    assert {rule.style for rule in gathered.rules} == {"colwise_gather_output"} and not whole.rules
    assert hindrances(trace, gathered) == hindrances(trace, whole) != []
    pairs = plan_of_trace(record(Layers(CURABLE["view"][3]), {"x": torch.randn(2, 5, 16)}, "layers"))
    assert hindrances(trace, pairs) == []
