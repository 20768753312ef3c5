"""Lengths and shapes of shares, computed from integers, compared with the parts that ranks cut out of a tensor."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece, Units
from modular_converter.parallel.shard.apply import shard
from modular_converter.parallel.shard.shares import block_lengths, is_uneven, largest_share, share_shape


def piece(dim, parts=(), units=None, length=0):
    return Piece(frozenset(), dim, parts, "", length, units)


@given(st.integers(1, 4), st.integers(0, 5), st.sampled_from([(), (1, 1), (2, 1), (2, 2, 4)]), st.integers(0, 1))
def test_shapes_are_those_of_the_cut_tensors(ranks, more, parts, dim):
    shape = [3, 3]
    shape[dim] = 4 * (ranks + more) * (sum(parts) or 1)
    split = piece(dim, parts, Units(ranks + more), shape[dim])
    own = [tuple(shard(torch.zeros(shape), dim, parts, rank, ranks, split.units).shape) for rank in range(ranks)]
    assert [share_shape(tuple(shape), split, rank, ranks) for rank in range(ranks)] == own
    assert largest_share(tuple(shape), split, ranks) == max(own)
    assert is_uneven([piece(-1, length=6), split], ranks) == (len(set(own)) > 1) == bool((ranks + more) % ranks)


def test_what_stays_whole_has_its_own_shape():
    for split in (None, piece(-1)):
        assert share_shape((5, 7), split, 1, 3) == largest_share((5, 7), split, 3) == (5, 7)
    assert not is_uneven([piece(-1, length=5)], 3) and not is_uneven([], 3) and is_uneven([piece(0, length=5)], 3)


def test_blocks_have_the_lengths_of_their_proportion():
    assert block_lengths(12, ()) == [12] and block_lengths(12, (1, 1)) == [6, 6]
    assert block_lengths(8, (2, 2, 4)) == [2, 2, 4]
    assert block_lengths(4, (2, 2, 4)) == [1, 1, 2], "a share's blocks have the proportion alone"
    with pytest.raises(ApplyError, match="an axis of length 6 does not divide into parts 2:2:4"):
        block_lengths(6, (2, 2, 4))
