"""``unshard(shard(x)) == x`` for every layout, and a whole model comes back from its shards."""

import copy
import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.shard.apply import apply, undo
from modular_converter.parallel.shard.collectives import ThreadBoard, ThreadGroup
from modular_converter.parallel.shard.shards import shard, unshard


@given(st.sampled_from([1, 2, 4]), st.lists(st.integers(1, 3), max_size=3), st.integers(0, 2), st.integers(1, 3))
def test_a_shard_has_an_inverse(ranks, parts, dim, unit):
    shape = [2, 3, 5]
    shape[dim] = unit * ranks * (sum(parts) or 1)
    whole = torch.arange(float(torch.tensor(shape).prod())).view(shape)
    pieces = [shard(whole, dim, parts, rank, ranks) for rank in range(ranks)]
    assert torch.equal(unshard(pieces, dim, parts), whole)


def test_a_block_that_does_not_divide_is_an_error():
    with pytest.raises(ApplyError, match="does not divide over 2 ranks"):
        shard(torch.zeros(6), 0, (1, 1), 0, 2)


def test_a_model_comes_back_whole():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
            self.heads = 4

    whole = Block()
    text = "plan x\nrule up packed_colwise parts=1:1\nrule down rowwise\nattribute :heads\n"
    board = ThreadBoard(2)
    models = [copy.deepcopy(whole) for _ in range(2)]

    def work(rank):
        with board.baton:
            applied = apply(models[rank], Plan.parse(text), ThreadGroup(board, rank))
            assert models[rank].up.weight.shape == (8, 8) and models[rank].heads == 2
            undo(applied)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in models:
        assert model.heads == 4
        for name, value in whole.state_dict().items():
            assert torch.equal(model.state_dict()[name], value)


def test_a_key_that_matches_nothing_is_an_error():
    with pytest.raises(ApplyError, match=r"layers\.\*\.up: matches no module"):
        apply(torch.nn.Linear(4, 4), Plan.parse("plan x\nrule layers.*.up colwise\n"), ThreadGroup(ThreadBoard(1), 0))
