"""A placement is said only where torch's own cut is the plan's: compared with torch's code on random cuts."""

from __future__ import annotations

import pytest


torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.distributed.tensor import Shard  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402

from modular_converter.parallel.engine.group.held_weights import chunk_lengths, placement_of  # noqa: E402
from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.plans.resolve import Piece, Units  # noqa: E402
from modular_converter.parallel.shard.apply import shard  # noqa: E402


@given(st.data())
def test_torch_cuts_as_the_plan_where_a_placement_is_said(data):
    size, blocks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    number, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 3))
    length = blocks * number * width
    units = Units(number) if data.draw(st.booleans()) else None
    piece = Piece(frozenset({"colwise"}), 0, (1,) * blocks if blocks > 1 else (), "", length, units)
    whole = torch.arange(length)
    try:
        shares = [shard(whole, 0, piece.parts, rank, size, units) for rank in range(size)]
    except ApplyError:
        return
    placement = placement_of(piece, size, True)
    if placement is None:
        assert blocks > 1 or [len(share) for share in shares] != list(chunk_lengths(length, size))
        return
    assert isinstance(placement, (Shard, _StridedShard))
    pieces, _ = placement._split_tensor(whole, size, with_padding=False)
    assert all(torch.equal(one, share) for one, share in zip(pieces, shares))


@pytest.mark.parametrize("dim, alone, said", [(0, True, True), (0, False, False), (1, False, True)])
def test_packed_blocks_beside_a_data_dimension_are_no_dtensor(dim, alone, said):
    piece = Piece(frozenset({"packed_colwise"}), dim, (1, 1), "", 8, None)
    assert (placement_of(piece, 2, alone) is not None) == said


def test_copies_are_no_dtensor():
    assert placement_of(Piece(frozenset({"colwise"}), 0, (), "", 16, Units(2, 1)), 4, True) is None
