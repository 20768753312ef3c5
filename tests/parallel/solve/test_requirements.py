"""Integers of the code that state a length: which of them shrink, and what is said where one cannot."""

import pytest
import torch
from torch import nn

from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.derive import derive_plan
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.trace.record import record


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
    plan = derive_plan(traced(between))
    assert {rule.style for rule in plan.rules} == {"colwise", "rowwise"} and plan.attributes == attributes


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
