"""A module of one's own whose rows depend on each other, of any size, does not go to data ranks."""

import logging

import pytest
import torch
from torch import nn

from modular_converter.parallel.engine.base.preflight import refuse_narrow
from modular_converter.parallel.engine.group import parts_of_batch
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.tiny.inputs import remember_examples


ROWS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


class Centred(nn.Module):
    def __init__(self, mixes):
        super().__init__()
        self.linear, self.mixes = nn.Linear(3, 3), mixes
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        x = self.linear(x)
        return x - x.mean(0) if self.mixes else x


@pytest.mark.parametrize("limit", [1e9, 1.0])
def test_a_module_of_any_size_is_looked_at_with_its_examples(limit, monkeypatch):
    monkeypatch.setattr(parts_of_batch, "MOST_PARAMETERS", limit)
    for mixes in (True, False):
        model = Centred(mixes)
        remember_examples(model, {"x": ROWS})
        before = {name: one.clone() for name, one in model.state_dict().items()}
        if mixes:
            with pytest.raises(ApplyError, match="a row of what Centred returns depends on the other rows"):
                parts_of_batch.look_at_rows(model)
        else:
            parts_of_batch.look_at_rows(model)
        assert model.training and all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


def test_what_is_too_large_to_be_looked_at_is_told(monkeypatch, caplog):
    monkeypatch.setattr(parts_of_batch, "MOST_PARAMETERS", 1.0)
    with caplog.at_level(logging.WARNING):
        parts_of_batch.look_at_rows(Centred(True))
    assert "it was not looked at whether its rows depend on each other" in caplog.text
    assert "give example_inputs=" in caplog.text


def test_numbers_of_eight_bits_are_refused_by_name():
    model = Centred(False)
    model.register_buffer("table", torch.zeros(3).to(torch.float8_e4m3fn))
    with pytest.raises(ApplyError, match="table is of torch.float8_e4m3fn: processes exchange and sum no numbers"):
        refuse_narrow(model)
    refuse_narrow(Centred(False))


def test_lazy_modules_without_sizes_are_refused_by_name():
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(ApplyError, match="0.weight is of a lazy module that has run no forward yet"):
        refuse_narrow(model)
    model(ROWS)
    refuse_narrow(model)
