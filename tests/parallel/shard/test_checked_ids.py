"""Ids that an embedding lacks are named before they reach a device, whatever the embedding's class adds."""

import pytest
import torch

from modular_converter.parallel.shard.forwards import check_ids, uncheck_ids


class Scaled(torch.nn.Embedding):
    def forward(self, ids):
        return super().forward(ids) * 3


class Positions(torch.nn.Embedding):
    """Takes ids of another vocabulary, for their shape alone."""

    def forward(self, ids, first=0):
        return super().forward(torch.arange(first, first + ids.shape[-1]))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.scaled, self.places = torch.nn.Embedding(9, 4), Scaled(9, 4), Positions(5, 4)

    def forward(self, ids, first=0):
        return self.words(ids) + self.scaled(input=ids) if first < 0 else self.words(ids) + self.places(ids, first)


@pytest.fixture
def model():
    found = Model()
    found.own = check_ids(found)
    return found


@pytest.mark.parametrize("wrong", [9, -1, 1 << 40])
def test_a_wrong_id_is_named_with_its_place(model, wrong):
    ids = torch.tensor([[1, 2, 8], [0, wrong, 3]])
    said = rf"index out of range: {wrong} at \[1, 1\] of the ids of {{}}, which has 9 rows, 0 to 8"
    with pytest.raises(IndexError, match=said.format("words")):
        model(ids)
    with pytest.raises(IndexError, match=said.format("scaled")):
        model.scaled(ids)


def test_other_ids_are_looked_up_as_before(model):
    ids = torch.tensor([[1, 2, 8], [0, 4, 3]])
    weights = {name: module.weight for name, module in model.named_children()}
    assert torch.equal(model.scaled(ids), weights["scaled"][ids] * 3)
    assert torch.equal(model(ids, 2), weights["words"][ids] + weights["places"][2:5])
    with pytest.raises(IndexError, match=r"5 at \[2\] of the ids of places, which has 5 rows"):
        model(ids, 3)
    assert model.words(ids[:0]).shape == (0, 3, 4)
    assert isinstance(model.scaled, Scaled) and type(model.words).__name__ == "Embedding"


def test_compiled_code_has_no_check(model):
    whole = torch.compile(model, backend="eager", fullgraph=True)
    ids = torch.tensor([[1, 2, 8]])
    assert torch.equal(whole(ids), model(ids))


def test_classes_are_given_back(model):
    uncheck_ids(model.own)
    assert [type(module) for module in model.children()] == [torch.nn.Embedding, Scaled, Positions]
    assert not [name for module in model.children() for name in vars(module) if "checked" in name]
