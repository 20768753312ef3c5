"""A rank's part of the integers of a model's code: derived from the weights around them, and refused without such
weights.
"""

import pytest
from torch import nn

from modular_converter.parallel.errors import MisfitError
from modular_converter.parallel.plans.resolve import Piece, Units
from modular_converter.parallel.shard.apply import group_sizes, own_integer


def cut(length, units=None, parts=()):
    return Piece(frozenset(), 0, parts, "", length, units)


def parts_of(pieces, label, value, size):
    return [own_integer(pieces, label, value, rank, size) for rank in range(size)]


EVEN = {"attn.q.weight": cut(64), "attn.q.bias": cut(64)}
UNEVEN = {"attn.q.weight": cut(25 * 8, Units(25)), "mlp.up.weight": cut(10)}
# Eight query heads of width 16 in two groups, on four ranks: pairs of ranks have a copy of a key/value head.
GROUPED = {"attn.q.weight": cut(128, Units(2, 4)), "attn.k.weight": cut(32, Units(2, 1))}
# Nine heads in three groups of three on six ranks: the number of groups is that of the members of each.
SQUARE = {"attn.q.weight": cut(72, Units(3, 3)), "attn.k.weight": cut(24, Units(3, 1))}


@pytest.mark.parametrize(
    "pieces, label, value, found",
    [
        (EVEN, "attn:heads", 8, [2, 2, 2, 2]),
        (UNEVEN, "attn:heads", 25, [7, 6, 6, 6]),
        (UNEVEN, "attn:width", 200, [56, 48, 48, 48]),
        (UNEVEN, "mlp:inner", 10, [3, 3, 2, 2]),
        (GROUPED, "attn:heads", 8, [2, 2, 2, 2]),
        (GROUPED, "attn:num_key_value_groups", 4, [2, 2, 2, 2]),
        (GROUPED, "attn:config.n_rep", 4, [2, 2, 2, 2]),
        (GROUPED, "attn:groups", 2, [1, 1, 1, 1]),
        (GROUPED, "attn:width", 128, [32, 32, 32, 32]),
        (GROUPED, "attn:width", 32, [16, 16, 16, 16]),
        (SQUARE, "attn:heads", 9, [2, 1, 2, 1, 2, 1]),
        (SQUARE, "attn:groups", 3, [1, 1, 1, 1, 1, 1]),
        (SQUARE, "attn:num_key_value_groups", 3, [2, 1, 2, 1, 2, 1]),
        (SQUARE, "attn:config.num_kv_groups", 3, [2, 1, 2, 1, 2, 1]),
    ],
)
def test_an_integer_shrinks_with_the_weights_that_it_counts(pieces, label, value, found):
    assert parts_of(pieces, label, value, len(found)) == found


def test_the_nearest_weights_that_are_cut_say_it():
    pieces = {"layer.attn.q.weight": cut(6 * 8, Units(6)), "layer.up.weight": cut(10), "layer.attn.sub.w": cut(9)}
    pieces["layer.attn.sub.whole"] = Piece(frozenset(), -1, (), "")
    assert parts_of(pieces, "layer.attn:heads", 6, 4) == [2, 2, 1, 1]
    assert parts_of(pieces, "layer.attn.sub:rows", 9, 4) == [3, 2, 2, 2]
    assert parts_of({"up.weight": cut(10)}, "other.part:rows", 10, 4) == [3, 3, 2, 2]
    assert parts_of({"up.weight": cut(10)}, ":rows", 10, 4) == [3, 3, 2, 2]


@pytest.mark.parametrize(
    "pieces, label, value, size, said",
    [
        (EVEN, "attn:heads", 6, 4, "attn:heads is 6, which does not divide over 4 ranks"),
        ({}, "attn:heads", 6, 4, "attn:heads is 6, which does not divide over 4 ranks"),
        (UNEVEN, "attn:heads", 24, 4, "attn:heads is 24, and no weight near it shows how"),
        (UNEVEN, ":both", 50, 4, "no weight near it shows how it divides over 4 ranks"),
        (GROUPED, "attn:heads", 5, 4, "attn:heads is 5, and no weight near it shows how"),
    ],
)
def test_an_integer_of_which_nothing_is_known_is_refused_with_its_place(pieces, label, value, size, said):
    with pytest.raises(MisfitError, match=said) as caught:
        own_integer(pieces, label, value, 0, size)
    assert caught.value.place == label.partition(":")[0]


def test_group_sizes_are_those_of_members_that_ranks_share_out():
    model = nn.ModuleDict(
        {"attn": nn.ModuleDict({"q": nn.Linear(2, 2), "k": nn.Linear(2, 2)}), "mlp": nn.Linear(2, 2)}
    )
    model["attn"].num_key_value_groups, model["attn"].n_rep, model["attn"]["q"].num_kv_groups = 4, 5, 4
    assert group_sizes(model, GROUPED, 4) == [("attn.q", "num_kv_groups"), ("attn", "num_key_value_groups")]
    assert group_sizes(model, GROUPED, 2) == []
    assert group_sizes(model, {"attn.k.weight": cut(32, Units(2, 1)), "mlp.weight": cut(2)}, 4) == []


def test_the_nearest_module_around_is_asked_first():
    pieces = {"a.b.c.w": cut(5 * 4, Units(5)), "a.w": cut(7 * 4, Units(7)), "w": cut(9 * 4, Units(9))}
    assert parts_of(pieces, "a.b.c:n", 5, 2) == [3, 2] == parts_of(pieces, "a.b:n", 5, 2)
    assert parts_of({"a.w": pieces["a.w"], "w": pieces["w"]}, "a.b.c:n", 63, 2) == [36, 27]
    for label in ("a.b:n", "a.b.c:n", "a.b.c.d:n"):
        assert parts_of({"a.w": pieces["a.w"], "b.w": pieces["w"]}, label, 63, 2) == [36, 27]
    assert parts_of({"b.w": pieces["w"]}, "a.b:n", 9, 2) == [5, 4]
