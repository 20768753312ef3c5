"""``unshard(shard(x)) == x`` for every layout, and a whole model comes back from its shards."""

import copy
import threading
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Units
from modular_converter.parallel.shard.apply import apply, shard, undo, unshard
from modular_converter.parallel.shard.collectives import ThreadBoard, ThreadGroup, enter, forget_entered
from modular_converter.parallel.shard.shares import share_lengths, stretches


@given(
    st.integers(1, 5), st.lists(st.integers(1, 3), max_size=3), st.integers(0, 2), st.integers(0, 9), st.integers(1, 3)
)
def test_a_shard_has_an_inverse(ranks, parts, dim, more, width):
    """Also where the units (heads, say) do not divide by the ranks."""
    units = Units(ranks + more)
    shape = [2, 3, 5]
    shape[dim] = width * units.number * (sum(parts) or 1)
    whole = torch.arange(float(torch.tensor(shape).prod())).view(shape)
    pieces = [shard(whole, dim, parts, rank, ranks, units) for rank in range(ranks)]
    assert torch.equal(unshard(pieces, dim, parts), whole)
    lengths = share_lengths(shape[dim], parts, ranks, units)
    assert [piece.shape[dim] for piece in pieces] == list(lengths) == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] in (0, width * (sum(parts) or 1))


def test_rows_that_do_not_divide_are_shared_out_as_far_as_they_go():
    assert share_lengths(50257, (), 2) == (25129, 25128)
    assert [stretches(50257, (), rank, 4)[0][0] for rank in range(4)] == [0, 12565, 25129, 37693]
    assert share_lengths(25 * 64, (), 2, Units(25)) == (13 * 64, 12 * 64)
    assert share_lengths((4 + 2 + 2) * 64, (2, 1, 1), 3, Units(2 * 32)) == (176, 168, 168)


@pytest.mark.parametrize(
    "length, parts, ranks, units, said",
    [
        (3, (), 4, 0, "3 units are too few for 4 ranks: one rank would hold nothing"),
        (256, (), 8, 4, "4 units are too few for 8 ranks"),
        (10, (), 2, 3, "a block of length 10 is not made of 3 equal units"),
        (18, (2, 1), 4, 0, "blocks of lengths 12, 6 do not divide over 4 ranks; units= would say"),
        (7, (1, 1), 2, 0, "an axis of length 7 does not divide into parts 1:1"),
    ],
)
def test_an_axis_that_cannot_be_shared_out_is_an_error(length, parts, ranks, units, said):
    with pytest.raises(ApplyError, match=said):
        shard(torch.zeros(length), 0, parts, 0, ranks, Units(units) if units else None)


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
        with board.turn:
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


class _Counting:
    """One rank of one, which counts the sums."""

    rank, size, sums = 0, 1, 0

    def all_reduce(self, tensor):
        self.sums += 1
        return tensor.clone()

    def all_gather(self, tensor):
        return [tensor]


@pytest.mark.parametrize("change, sums", [(lambda x: None, 1), (lambda x: x.detach().mul_(2), 2)])
def test_several_uses_of_a_tensor_are_summed_once_unless_it_changes(change, sums):
    group, x = _Counting(), torch.ones(3, requires_grad=True)
    source = x * 1
    with torch.no_grad():
        enter(source, group)
    one = enter(source, group) * 2
    change(source)
    two = enter(source, group) * 3
    (one + two).sum().backward()
    assert group.sums == sums and torch.equal(x.grad, torch.full((3,), 5.0))


def test_what_was_entered_is_let_go():
    group, x = _Counting(), torch.ones(3, requires_grad=True)
    kept = weakref.ref(enter(x * 1, group))
    assert kept() is not None
    forget_entered(group)
    assert kept() is None


def test_what_a_backward_computes_again_is_let_go():
    group, weight, entered = _Counting(), torch.ones(3, requires_grad=True), []

    def layer(x):
        entered.append(weakref.ref(inside := enter(x * weight, group)))
        return inside.sin()

    x = torch.ones(3, requires_grad=True)
    result = checkpoint(layer, checkpoint(layer, x, use_reentrant=False), use_reentrant=False).sum()
    forget_entered(group)
    result.backward()
    assert len(entered) == 4
    del result
    assert not any(one() is not None for one in entered) and "_entered" not in vars(group)
