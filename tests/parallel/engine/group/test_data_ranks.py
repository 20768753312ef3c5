"""The layers around which weights are gathered, one at a time."""

from __future__ import annotations

import types

import pytest


torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.fsdp import FSDPModule  # noqa: E402

from modular_converter.parallel.engine.group.kept_gathered import WATCHED, data_units_of  # noqa: E402
from modular_converter.parallel.modules import own_layers  # noqa: E402


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


def test_the_units_of_a_watched_model_are_found_without_a_walk_through_it():
    model = nn.Sequential(nn.Linear(2, 2))
    parts = types.SimpleNamespace(modules=[*model.modules()])
    model.__dict__[WATCHED] = types.SimpleNamespace(parts=parts)
    model.__dict__["modules"] = lambda: pytest.fail("all modules were walked")
    assert data_units_of(model) == []
    model[0].__class__ = type("Shared", (FSDPModule, nn.Linear), {"__new__": nn.Linear.__new__})
    assert data_units_of(model) == [model[0]]
