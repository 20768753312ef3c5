"""Runs that leave a model as it is."""

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
