"""Units of an axis on any number of ranks: each member is on one rank, or a unit without members on several."""

from hypothesis import assume, given
from hypothesis import strategies as st

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Units
from modular_converter.parallel.shard.shares import without_units


@given(st.integers(1, 7), st.integers(0, 5), st.integers(1, 14))
def test_ranks_hold_every_member_once(number, members, size):
    units = Units(number, members)
    try:
        own = [units.own(rank, size) for rank in range(size)]
    except ApplyError:
        assert size > number * max(members, 1) or size > number and -(-size // number) > members
        return
    assume(not units.has_copies(size))
    assert [place for first, count in own for place in range(first, first + count)] == list(
        range(number * max(members, 1))
    )
    assert all(units.is_first_replica(rank, size) for rank in range(size))
    if size > number:  # no rank has members of two units, and the ranks of a unit have about as many
        assert all(first // members == (first + count - 1) // members for first, count in own)
        assert len({first // members for first, _ in own}) == number
    else:
        assert {count // max(members, 1) for _, count in own} <= {number // size, -(-number // size)}


@given(st.integers(1, 7), st.integers(1, 14))
def test_a_unit_of_one_member_is_copied(number, size):
    units = Units(number, 1)
    own = [units.own(rank, size) for rank in range(size)]
    assert units.has_copies(size) == (size > number) and not Units(number, 2).has_copies(size)
    firsts = [own[rank] for rank in range(size) if units.is_first_replica(rank, size)]
    assert firsts == list(dict.fromkeys(own)) and sum(count for _, count in firsts) == number
    if size > number:
        assert firsts == [(unit, 1) for unit in range(number)]
        assert {own.count(one) for one in firsts} <= {size // number, -(-size // number)}


def test_numbers_of_units_are_one_models_and_expressions_are_any():
    plan = Plan.parse("plan x\nrule a colwise units=2 members=4\nrule b colwise units=heads\nrule c rowwise\n")
    assert without_units(plan) == Plan.parse("plan x\nrule a colwise\nrule b colwise units=heads\nrule c rowwise\n")
