"""Runs that leave a model as it is."""

import itertools

import pytest
import torch
from torch import nn

from modular_converter.parallel.trace.unchanged import same_attributes, unchanged


class Changing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.inner = nn.Linear(2, 2)
        self.table, self.seen, self.last = {"old": 1}, [1], None

    def forward(self):
        with torch.no_grad():
            self.inner.weight.zero_()
        self.count = self.count + 1
        self.table["new"], self.last, self.more = 2, 3, 4
        self.table.pop("old")
        self.seen += [2]
        self.inner = nn.Linear(2, 2)
        raise ValueError


def run(context):
    model = Changing()
    handle = model.register_forward_hook(lambda *_: None)
    inner, weight = model.inner, model.inner.weight.clone()
    with pytest.raises(ValueError), context(model):
        model()
    assert model.table == {"old": 1} and model.seen == [1] and model.last is None and not hasattr(model, "more")
    assert model.inner is inner and not model.count and len(model._forward_hooks) == 1
    handle.remove()
    assert not model._forward_hooks
    return torch.equal(inner.weight, weight)


def test_weights_and_attributes_get_their_values_back():
    assert run(unchanged)


def test_attributes_alone_get_their_values_back():
    assert not run(same_attributes)


def test_entries_that_are_written_past_autograd_get_their_values_back():
    model = nn.Linear(3, 3)
    model.register_buffer("table", torch.tensor([float("nan"), 1.0]))
    model.sparse = torch.eye(3).to_sparse()
    weight, bias, entry = model.weight.clone(), model.bias.clone(), model.bias.data_ptr()
    with unchanged(model):
        model.weight.data.zero_()
        model.bias.data = torch.ones(4)
        model.table[1] = 3
        model.sparse.mul_(2)
    assert torch.equal(model.weight, weight) and torch.equal(model.bias, bias) and model.bias.data_ptr() == entry
    assert model.table[1] == 1 and torch.equal(model.sparse.to_dense(), torch.eye(3))


def test_what_cannot_be_given_back_is_named():
    model = nn.Linear(3, 3)
    model.held = [itertools.count()]
    with unchanged(model) as lost:
        next(model.held[0])
    assert lost == ("what its code keeps in an object of count",)
