"""Factored axes: refinement by views, cuts and concatenations."""

from hypothesis import given
from hypothesis import strategies as st

from modular_converter.parallel.solve.axes import Axes, size


def test_fused_projection_becomes_a_sum_of_heads():
    axes = Axes()
    fused = axes.leaf(108)
    q, k, v = (axes.cut(fused, 36 * i, 36 * (i + 1)) for i in range(3))
    heads = axes.take(q, 6)[0]
    axes.unify(q, k)
    axes.unify(k, v)
    assert heads is not None
    assert [atom.size for atom in axes.leaves(fused)] == [6, 6] * 3
    assert len({atom.number for atom in axes.leaves(fused)}) == 2
    assert not axes.marks


def test_grouped_keys_split_the_query_heads():
    axes = Axes()
    query, groups, repeats = axes.leaf(8), axes.leaf(4), axes.leaf(2)
    axes.unify(query, groups + repeats)
    assert axes.leaves(query) == [*axes.leaves(groups), *axes.leaves(repeats)]


def test_factors_that_do_not_line_up_stay_whole():
    axes = Axes()
    axes.unify(axes.leaf(6) + axes.leaf(2), axes.leaf(4) + axes.leaf(3))
    assert axes.marks


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_a_cut_has_the_length_it_was_asked_for(factors, data):
    axes = Axes()
    seq = tuple(atom for factor in factors for atom in axes.leaf(factor))
    length = size(seq)
    start = data.draw(st.integers(0, length - 1))
    stop = data.draw(st.integers(start + 1, length))
    assert size(axes.cut(seq, start, stop)) == stop - start
    assert size(axes.flat(seq)) == length


def test_axes_shifted_against_each_other_stay_whole():
    """Each entry would be the next one, which a step at a time would show of a long axis."""
    axes = Axes()
    sequence = axes.leaf(4096)
    axes.unify(axes.cut(sequence, 0, 4095), axes.cut(sequence, 1, 4096))
    assert {mark.reason for mark in axes.marks} == {"axes shifted against each other"}


def test_a_slice_up_to_the_end_of_one_factor_stays_inside_it():
    """Of an axis of 2 times 6 entries, the places 2 to 6 are the last four of the first six."""
    axes = Axes()
    axis = axes.leaf(2) + axes.leaf(6)
    assert size(axes.cut(axis, 2, 6)) == 4 and not axes.marks
    assert size(axes.cut(axis, 4, 8)) == 4 and axes.marks
