"""Integers of the code that state a length: those that shrink, and the message if one cannot."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.solve.write_rules import _summed_gradients
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


class Block(nn.Module):
    """A pair of layers; ``between`` is what the code does with the axis between them."""

    def __init__(self, between):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.LayerNorm(16)
        self.heads, self.width, self.both, self.between = 8, 4, 32, between

    def forward(self, x):
        normed = self.norm(x)
        return self.norm(x + self.down(self.between(self, torch.relu(self.up(normed)))))


def traced(between):
    torch.manual_seed(0)
    return record(Block(between), {"x": torch.randn(2, 5, 16)}, "block")


@pytest.mark.parametrize(
    "between, attributes",
    [
        (lambda m, x: x.view(2, 5, m.heads, m.width).flatten(2), (":heads",)),
        (lambda m, x: x.view(2, 5, -1, m.width).flatten(2), ()),
        (lambda m, x: x.view(2, 5, m.heads, -1).flatten(2), (":heads",)),
        (lambda m, x: x.view(2, 5, m.heads, m.width).reshape(2, 5, m.heads * m.width), (":heads",)),
        (lambda m, x: x.unflatten(2, (m.both // m.width, m.width)).flatten(2), (":both",)),
        (lambda m, x: x.view(2, 5, 2 * m.heads - m.heads, m.width).flatten(2), (":heads",)),
    ],
)
def test_attributes_shrink_with_the_axis(between, attributes):
    plan = plan_of_trace(traced(between))
    assert {rule.style for rule in plan.rules} == {"colwise", "rowwise"} and plan.attributes == attributes


class Layers(nn.Module):
    """Two blocks, which do different things between their layers."""

    def __init__(self, *between):
        super().__init__()
        self.layers = nn.ModuleList([Block(one) for one in between])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_what_one_layer_hinders_stays_whole_in_all_layers_like_it():
    """A plan has one rule for all of them."""

    def as_it_is(m, x):
        return x

    torch.manual_seed(0)
    for second, styles in ((as_it_is, {"colwise", "rowwise"}), (lambda m, x: x.flip(-1), {"colwise_gather_output"})):
        plan = plan_of_trace(record(Layers(as_it_is, second), {"x": torch.randn(2, 5, 16)}, "layers"))
        assert {rule.style for rule in plan.rules} == styles
        assert all(rule.pattern.startswith("layers.*.") for rule in plan.rules)


class Joined(nn.Module):
    """Several layers side by side, joined for one behind them, with a factor for each entry."""

    def __init__(self, number):
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.ModuleList([nn.Linear(16, 8) for _ in range(number)])
        self.scale, self.down = nn.Parameter(torch.randn(8 * number)), nn.Linear(8 * number, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        normed = self.norm(x)
        return self.norm(x + self.down(torch.cat([up(normed) for up in self.up], -1) * self.scale))


@pytest.mark.parametrize("number", [2, 3, 4])
def test_blocks_of_joined_tensors_are_counted_where_they_stand_in_the_code(number):
    """More than three may be a list whose length a configuration gives."""
    x = {"x": torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(1))}
    plan = plan_of_trace(record(Joined(number), x, "joined"))
    rules = {rule.pattern: rule for rule in plan.rules}
    if number < 4:
        assert rules["down"].style == "packed_rowwise" and rules["down"].parts == (1,) * number
        assert check_model_on_threads(Joined(number), plan, x, 2).passed
    else:
        assert "packed_rowwise" not in {rule.style for rule in plan.rules}


def test_gradients_are_summed_for_a_module_only_where_all_of_its_weights_need_it():
    own = {"norm": {"weight": None, "bias": None}, "": {"table": None, "other": None}}
    for summed, patterns in (
        (["norm.weight", "norm.bias"], ["norm"]),
        (["norm.weight"], ["norm.weight"]),
        (["table", "other"], ["table", "other"]),
        (["table", "norm.bias", "norm.weight"], ["table", "norm"]),
    ):
        assert [rule.pattern for rule in _summed_gradients(dict.fromkeys(summed, 0), own)] == patterns


@pytest.mark.parametrize(
    "between, said",
    [
        (lambda m, x: x.view(2, 5, 8, 4).flatten(2), "the number 8"),
        (lambda m, x: x.view(2, 5, m.norm.weight.shape[0] // 2, 4).flatten(2), "computed from whole sizes"),
        (lambda m, x: x.view(2, 5, m.norm.weight.shape[0], 2).flatten(2), "read from a whole tensor"),
        (
            lambda m, x: x.view(2, 5, m.heads, 4).flatten(2) * m.norm.weight.view(m.heads, 2).sum(),
            "heads of the model, needed whole elsewhere",
        ),
    ],
)
def test_what_cannot_shrink_is_said_in_words(between, said):
    choice = choose(follow(traced(between)))
    assert f"a size in a view in the model is {said}" in [reason for _, reason in choice.refused]
    assert not choice.attributes and not choice.accepted


class Apart(nn.Module):
    """Two blocks that are no layers of one list."""

    def __init__(self, wide, narrow):
        super().__init__()
        self.wide, self.narrow = Block(wide), Block(narrow)

    def forward(self, x):
        return self.wide(x) + self.narrow(x)


def test_what_must_not_shrink_hinders_only_the_axes_of_its_block():
    def troubled(m, x):
        return x.view(2, 5, m.heads, 4).flatten(2) * m.norm.weight.view(m.heads, 2).sum()

    torch.manual_seed(0)
    for blocks in ((troubled, lambda m, x: x), (lambda m, x: x, troubled)):
        trace = record(Apart(*blocks), {"x": torch.randn(2, 5, 16)}, "apart")
        (taken,) = choose(follow(trace)).accepted
        free = "narrow" if blocks[0] is troubled else "wide"
        assert {trace.parameters[place.parameter].name.split(".")[0] for place in taken.places} == {free}
