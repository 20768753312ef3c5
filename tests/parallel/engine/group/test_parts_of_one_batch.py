"""What is noted of batches of which data ranks have parts."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from modular_converter.parallel.engine.group.kept_gathered import _KEPT
from modular_converter.parallel.engine.group.parts_of_batch import PartsOfBatch, WrittenBuffers, look_at_rows
from modular_converter.parallel.errors import ApplyError


def test_buffers_that_were_written_or_are_new_are_found():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    written = WrittenBuffers(model.named_modules())
    assert written.since() == {}
    model[0](torch.rand(3, 2))
    assert {name.partition(".")[0] for name in written.since()} == {"0"} and written.since() == {}
    model[1].register_buffer("more", torch.zeros(1))
    assert "1.more" in written.since() and written.since() == {}


class Centred(nn.Linear):
    """Rows that depend on the mean of their batch."""

    def forward(self, x):
        return super().forward(x - x.mean(0))


def parts_of(model):
    """As of one of two processes with copies of a model, which has made no backward yet."""
    model.__dict__[_KEPT] = SimpleNamespace(layers=[])
    grid = SimpleNamespace(layout=SimpleNamespace(data=2, shards=1), context=None, place="cpu")
    return PartsOfBatch(model, grid, None)


def test_the_first_batch_of_several_rows_shows_whether_they_depend_on_each_other():
    model = Centred(3, 3)
    look_at_rows(model)
    parts = parts_of(model)
    loss = torch.ones((), requires_grad=True)
    for _ in range(2):
        parts.note(SimpleNamespace(loss=loss), [torch.rand(1, 3)], {}, b"")
    with pytest.raises(ApplyError, match="a row of what Centred returns depends on the other rows"):
        parts.note(SimpleNamespace(loss=loss), [torch.rand(2, 3)], {}, b"")


class Optional(nn.Linear):
    """An input that is seldom given."""

    def forward(self, x, center=None):
        return super().forward(x if center is None else x - x.mean(0))


def test_the_first_batch_with_another_input_is_looked_at_and_weights_are_held_once():
    model = Optional(30, 30)
    look_at_rows(model)
    copy = model.__dict__["_copy_without_batch"]
    assert copy.weight.untyped_storage().nbytes() == 4 and model.weight.untyped_storage().nbytes() == 3600
    parts = parts_of(model)
    loss = torch.ones((), requires_grad=True)
    parts.note(SimpleNamespace(loss=loss), [torch.rand(2, 30)], {}, b"")
    with pytest.raises(ApplyError, match="a row of what Optional returns depends on the other rows"):
        parts.note(SimpleNamespace(loss=loss), [torch.rand(2, 30)], {"center": True}, b"")


class Drawing(nn.Linear):
    def forward(self, x, generator=None):
        return super().forward(x.add_(torch.rand(x.shape, generator=generator)))


def test_a_look_at_rows_changes_no_argument():
    model, generator, rows = Drawing(3, 3), torch.Generator().manual_seed(0), torch.zeros(2, 3)
    look_at_rows(model)
    loss = torch.ones((), requires_grad=True)
    parts_of(model).note(SimpleNamespace(loss=loss), [rows], {"generator": generator}, b"")
    assert not rows.any() and torch.equal(generator.get_state(), torch.Generator().manual_seed(0).get_state())


def test_a_loss_without_labels_is_the_models_own():
    model = nn.Linear(3, 3)
    parts = parts_of(model)
    for more in ({}, {"labels": torch.ones(2), "num_items_in_batch": 2}):
        parts.note(SimpleNamespace(loss=torch.ones((), requires_grad=True)), [torch.rand(2, 3)], more, b"")
    assert sum(key[0] != "items" for key in parts.means) == 2
