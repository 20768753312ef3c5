"""Axes compared with the entries that they stand for: each cut, join, alignment and share is checked entry by entry.

An entry is the set of its coordinates: for each leaf that it lies on, the leaf's number and the place on it.
"""

from itertools import accumulate, product
from math import prod
from operator import mul

from hypothesis import assume, given
from hypothesis import strategies as st

from modular_converter.parallel.solve.axes import PRODUCT, SUM, Axes, size
from modular_converter.parallel.solve.choose import layout, local_size
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.operators.views import _groups
from modular_converter.parallel.trace.graph import Trace


RANKS = 2


def entries(seq):
    """The coordinates of each entry of an axis, in order."""
    return [frozenset().union(*found) for found in product(*map(_of_atom, seq))]


def _of_atom(atom):
    if atom.kind == PRODUCT:
        return entries(atom.parts[0])
    if atom.kind == SUM:
        return [entry for part in atom.parts for entry in entries(part)]
    return [frozenset({(atom.number, at)}) for at in range(atom.size)]


def marked(axes):
    return {atom.number for mark in axes.marks for atom in axes.leaves(mark.seq)}


FACTORS = st.lists(st.integers(1, 6), min_size=1, max_size=3)


@st.composite
def axis(draw, axes, depth=2):
    """A new axis: factors, some of which are several axes behind each other."""
    found = ()
    for factor in draw(FACTORS):
        if depth and draw(st.integers(0, 3)) == 0:
            found += axes.concatenate([draw(axis(axes, depth - 1)) for _ in range(draw(st.integers(1, 3)))])
        else:
            found += axes.leaf(factor)
    return found if size(found) <= 400 else found[:1]


@given(st.data())
def test_a_cut_has_the_entries_between_its_borders(data):
    axes = Axes()
    seq = data.draw(axis(axes))
    start = data.draw(st.integers(0, size(seq) - 1))
    stop = data.draw(st.integers(start + 1, size(seq)))
    piece = axes.cut(seq, start, stop)
    assert size(piece) == stop - start
    wanted = entries(seq)[start:stop]
    constant = frozenset.intersection(*wanted)
    for one, other in zip(entries(piece), wanted):
        assert {number for number, _ in (one | constant) ^ other} <= marked(axes)


@given(st.data())
def test_the_outer_part_and_the_rest_are_the_axis(data):
    axes = Axes()
    seq = data.draw(axis(axes))
    before, sums = size(seq), [atom for atom in axes.flat(seq) if atom.kind == SUM]
    length = data.draw(st.sampled_from([one for one in range(1, before + 1) if before % one == 0]))
    head, rest = axes.take(seq, length)
    assert head is None or size(head) == length and entries(head + rest) == entries(seq)
    assert size(axes.flat(seq)) == before and all(atom.kind == SUM for atom in sums)
    lengths = [atom.size for atom in axes.leaves(seq)]
    if len(axes.flat(seq)) == len(lengths):  # factors alone: there is an outer part wherever borders meet
        borders = [size(axes.flat(seq)[:count]) for count in range(len(lengths) + 1)]
        assert (head is not None) == (length in borders)


@given(st.lists(st.integers(2, 6), min_size=1, max_size=3), st.data())
def test_a_leaf_is_taken_apart_wherever_it_divides(factors, data):
    axes = Axes()
    whole = axes.leaf(size_of(factors))
    assert [size(axes.take(whole, size_of(factors[:count]))[0]) for count in range(len(factors) + 1)] == [
        size_of(factors[:count]) for count in range(len(factors) + 1)
    ]
    assert [atom.size for atom in axes.leaves(whole)] == factors


def size_of(factors):
    return size(Axes().leaf(factors[0])) * size_of(factors[1:]) if factors else 1


@given(st.data())
def test_unified_axes_have_the_same_entries_or_stay_whole(data):
    axes = Axes()
    left = data.draw(axis(axes))
    right = data.draw(_of_length(axes, size(left)))
    axes.unify(left, right)
    assert size(axes.flat(left)) == size(axes.flat(right))
    if not axes.marks:
        assert entries(left) == entries(right)
    for one, other in zip(entries(left), entries(right)):
        assert {number for number, _ in one ^ other} <= marked(axes)


@st.composite
def _of_length(draw, axes, length):
    """A new axis of a given length."""
    if draw(st.booleans()) and length > 1:
        at = draw(st.integers(1, length - 1))
        return axes.concatenate([draw(_of_length(axes, at)), draw(_of_length(axes, length - at))])
    divisor = draw(st.sampled_from([one for one in range(1, length + 1) if length % one == 0]))
    return axes.leaf(divisor) + axes.leaf(length // divisor)


@given(st.data())
def test_equal_factors_line_up(data):
    """Also where one side has them one by one, and the other side as parts of a longer one."""
    axes = Axes()
    factors = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=4))
    at = data.draw(st.integers(0, len(factors)))
    left = axes.leaf(size_of(factors[:at])) + axes.leaf(size_of(factors[at:]))
    right = tuple(atom for factor in factors for atom in axes.leaf(factor))
    axes.unify(*(data.draw(st.permutations([left, right]))))
    assert not axes.marks and entries(left) == entries(right) and axes.leaves(left) == axes.leaves(right)


@given(st.data())
def test_segments_line_up_with_the_same_segments(data):
    axes = Axes()
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    inner = data.draw(st.integers(1, 3))
    left = axes.concatenate([axes.leaf(length) for length in lengths]) + axes.leaf(inner)
    right = axes.leaf(sum(lengths)) + axes.leaf(inner)
    axes.unify(*(data.draw(st.permutations([left, right]))))
    assert not axes.marks and entries(left) == entries(right)


@given(st.data())
def test_segments_line_up_with_several_factors(data):
    """Also where the factors outside are one, or go on inside."""
    axes = Axes()
    number, length, inner = (data.draw(st.integers(2, 4)) for _ in range(3))
    left = axes.concatenate([axes.leaf(length) for _ in range(number)]) + axes.leaf(inner)
    right = axes.leaf(number) + axes.leaf(length) + axes.leaf(inner)
    axes.unify(*(data.draw(st.permutations([left, right]))))
    assert not axes.marks and entries(left) == entries(right)


@given(st.data())
def test_a_layout_is_the_entries_of_each_rank(data):
    flow = Flow(Trace("x", (), (), (), (), (), ()))
    seq = data.draw(axis(flow.axes))
    even = [atom for atom in flow.axes.leaves(seq) if atom.size % RANKS == 0]
    chosen = {data.draw(st.sampled_from(even)).number} if even else set()
    lengths = {atom.number: atom.size for atom in even}
    for rank in range(RANKS):
        own = [
            all(at * RANKS // lengths[number] == rank for number, at in one if number in chosen)
            for one in entries(seq)
        ]
        assert own == [one for length, split in layout(flow, seq, chosen) for one in _own(length, split, rank)]
        assert local_size(flow, seq, chosen, RANKS) == sum(own)


def _own(length, split, rank):
    return [not split or at * RANKS // length == rank for at in range(length)]


SHAPES = st.lists(st.sampled_from([1, 2, 2, 3, 4, 6, 8]), max_size=5)


@given(SHAPES, st.data())
def test_a_view_is_taken_apart_wherever_both_shapes_have_a_border(shape, data):
    """In order, without a dimension left over, and no finer: the runs of both shapes have the same lengths."""
    total = prod(shape)
    other: list[int] = []
    while prod(other) < total or data.draw(st.integers(0, 3)) == 0:
        left = total // prod(other)
        other.append(data.draw(st.sampled_from([one for one in range(1, left + 1) if left % one == 0])))
        assume(len(other) < 9)
    groups = _groups(shape, other)
    assert [length for _, _, lengths in groups for length in lengths] == other
    assert [first for first, _, _ in groups] == [0, *(last for _, last, _ in groups[:-1])]
    assert groups[-1][1] == len(shape)
    for first, last, lengths in groups:
        assert prod(shape[first:last]) == prod(lengths)
    borders = set(running(shape)) & set(running(other)) - {1, total}
    assert set(running([prod(lengths) for _, _, lengths in groups])) - {1, total} == borders


def running(lengths):
    return accumulate(lengths, mul)
