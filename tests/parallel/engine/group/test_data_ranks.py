"""The layers around which weights are gathered, one at a time."""

from __future__ import annotations

import pytest


torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from modular_converter.parallel.shard.layer_units import own_layers  # noqa: E402


class Experts(nn.ModuleList):
    """A list with a forward of its own, which is called as a whole."""

    def forward(self, x):
        return sum(expert(x) for expert in self)


def test_layers_are_those_of_the_outermost_lists():
    model = nn.ModuleDict(
        {"blocks": nn.ModuleList([nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), nn.Linear(2, 2)])}
    )
    model["experts"] = Experts([nn.Linear(2, 2)])
    model["behind"] = nn.ModuleList([Experts([nn.Linear(2, 2)])])
    first, second = model["blocks"][0]
    assert list(own_layers(model)) == [first, second, model["blocks"][1], model["behind"][0]]


def test_a_layer_that_shares_a_weight_with_something_outside_is_none():
    model = nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), "head": nn.Linear(2, 2)})
    model["head"].weight = model["blocks"][0].weight
    assert list(own_layers(model)) == [model["blocks"][1]]
