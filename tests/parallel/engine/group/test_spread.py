"""Where the entries of a process lie in a whole weight: together those of all processes are each entry once."""

import itertools
from types import SimpleNamespace

import pytest
import torch

from modular_converter.parallel.engine.group.spread import Spread
from modular_converter.parallel.plans.resolve import Piece


WHOLE = torch.arange(72.0).view(6, 12)


def entries(whole, box):
    for dim, (first, length) in enumerate(zip(*box)):
        whole = whole.narrow(dim, first, length)
    return whole


@pytest.mark.parametrize("cut", [None, (0, (1,)), (1, (1,)), (0, (1, 2)), (1, (1, 2))])
@pytest.mark.parametrize(("shares", "data"), [(1, 1), (2, 1), (1, 2), (2, 2), (2, 4)])
def test_the_boxes_of_all_processes_are_the_whole_weight(monkeypatch, cut, shares, data):
    found = torch.full_like(WHOLE, -1.0)
    for share, rank in itertools.product(range(shares), range(data)):
        piece = None if cut is None else Piece(frozenset(), *cut, "", WHOLE.shape[cut[0]])
        held = SimpleNamespace(piece=piece, group=SimpleNamespace(rank=share, size=shares), shape=tuple(WHOLE.shape))
        over = SimpleNamespace(rank=rank, size=data) if data > 1 else None
        monkeypatch.setattr(Spread, "data", lambda self, over=over: over)
        one = Spread("up.weight", None, held)
        first, rows = one.rows
        local = torch.full((rows, one.share[1]), -1.0)
        for there, here in one.boxes():
            entries(local, here).copy_(entries(WHOLE, there))
            entries(found, there).copy_(entries(WHOLE, there))
        assert (local >= 0).all() and first + rows <= one.share[0]
    assert torch.equal(found, WHOLE)


def test_a_number_is_one_box():
    number = Spread("scale", torch.nn.Parameter(torch.tensor(2.0)), None)
    assert number.rows == (0, 0) and number.boxes() == [(((), ()), ((), ()))] and number.local(number.stored) == 2
