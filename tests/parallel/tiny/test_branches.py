"""A forward takes the other side of a branch on data, however the code asks."""

import numpy as np
import pytest
import torch
from torch import nn


pytest.importorskip("transformers")
from modular_converter.parallel.errors import BuildError  # noqa: E402
from modular_converter.parallel.tiny.build import Small  # noqa: E402
from modular_converter.parallel.tiny.uses import other_sides, untried_branches  # noqa: E402


IDS = torch.arange(12).view(2, 6)
X = IDS / 20


class Asking(nn.Module):
    """Code that asks; the sides are 0 and 1."""

    def __init__(self, asks):
        super().__init__()
        self.asks = asks

    def forward(self, x, ids=IDS):
        return x * 0 + (1 if self.asks(x, ids) else 0)


def is_large(x):
    """A function beside the model."""
    return bool((x.abs() > 40).any())


def sides_of(asks):
    """What the forward gives, and what it gives on each other side."""
    model = Asking(asks)
    small = Small("x", "", model, {"x": X})
    return model(X).max().item(), [side(model.forward, X).max().item() for side in other_sides(small)]


TURNED = {
    "truth": lambda x, ids: (x > 40).any(),
    "truth in another function": lambda x, ids: is_large(x),
    "contains": lambda x, ids: 40 in ids,
    "equal": lambda x, ids: not torch.equal(x, x.clamp(-40, 40)),
    "all close": lambda x, ids: not torch.allclose(x, x.clamp(-40, 40)),
    "item": lambda x, ids: x.max().item() > 40,
    "item of integers": lambda x, ids: (x > 40).sum().item() > 0,
    "truth of an item": lambda x, ids: (x > 40).sum().item(),
    "one id": lambda x, ids: ids[0, 0].item() == 7,
    "calculated": lambda x, ids: (x.max().item() - 40) * 2 > 0,
    "divided": lambda x, ids: ids.max().item() // 40 >= 1,
    "smaller of two": lambda x, ids: min(x.max().item(), 40) == 40,
    "list": lambda x, ids: 40 in ids.flatten().tolist(),
    "sorted": lambda x, ids: sorted(x.flatten().tolist())[-1] > 40,
    "booleans": lambda x, ids: all((x > 40).flatten().tolist()),
    "array": lambda x, ids: x.numpy().max() > 40,
    "array compared": lambda x, ids: np.any(x.numpy() > 40),
    "array of truths": lambda x, ids: (x > 40).numpy().any(),
    "item of an array": lambda x, ids: x.numpy().mean().item() > 40,
    "array calculated": lambda x, ids: np.sqrt(x.numpy() * 4).sum() >= 40,
    "length of places": lambda x, ids: (x > 40).nonzero().shape[0] > 0,
    "size of places": lambda x, ids: torch.argwhere(x > 40).size(0) > 0,
    "count of places": lambda x, ids: torch.where(x > 40)[0].numel() != 0,
    "length of a selection": lambda x, ids: len(x[x > 40]) > 0,
    "length without ones": lambda x, ids: not len(torch.unique(ids)),
}
FAR = {
    "cast": lambda x, ids: float(x.max()) > 40,
    "cast of an item": lambda x, ids: float(x.max().item()) > 40,
    "cast to integer": lambda x, ids: int(x.max()) > 40,
    "plain array": lambda x, ids: np.asarray(x).max() > 40,
    "equal to a number in the code": lambda x, ids: int((x < 0.5).sum()) == 3,
    "negative": lambda x, ids: int(x.min()) < -40,
}


@pytest.mark.parametrize("name", TURNED)
def test_comparisons_are_turned(name):
    assert sides_of(TURNED[name]) == (0, [1])


@pytest.mark.parametrize("name", FAR)
def test_numbers_whose_comparisons_are_not_seen_are_exchanged(name):
    usual, (large, negative, *written) = sides_of(FAR[name])
    if name.startswith("equal"):
        assert (usual, large, negative, written) == (0, 0, 0, [0, 1])
    else:
        assert (usual, large, negative) == (0, *((0, 1) if name == "negative" else (1, 0)))


def test_lengths_of_other_tensors_are_no_branches_on_data():
    assert sides_of(lambda x, ids: x.shape[0] > 40 or len(x) > 40 or x[:, :2].numel() > 40) == (0, [])


def test_a_loop_that_waits_for_data_ends_and_is_named():
    def asks(x, ids):
        while (x - 40).max().item() > 0:
            x = x - 1

    small = Small("x", "", Asking(asks), {"x": X})
    (side,) = other_sides(small)
    with pytest.raises(BuildError, match="repeats without end"):
        side(small.model.forward, X)
    (said,) = untried_branches(small, ())
    assert said.startswith("the other side of the branch on data in test_branches.py:")
    assert not untried_branches(small, [said])
