"""The plan within a number of collectives: an exact knapsack over what a plan shards."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modular_converter.parallel.plans.resolve import resolve
from modular_converter.parallel.plans.text_checks import wildcard
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.solve.cost import cost, covered, fill, plan_within
from modular_converter.parallel.solve.derive import SAVED
from modular_converter.parallel.tiny.build import build, target_of
from modular_converter.parallel.trace.record import record
from tests.parallel.plan_of_trace import plan_of_trace


ITEMS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 6)), max_size=7)


@settings(deadline=None)
@given(ITEMS, st.integers(0, 15))
def test_the_knapsack_is_as_good_as_trying_everything(items, limit):
    chosen = fill(items, limit)
    assert len(set(chosen)) == len(chosen) and sum(items[i][1] for i in chosen) <= limit
    sets = (s for count in range(len(items) + 1) for s in combinations(items, count))
    best = max(sum(value for value, _ in s) for s in sets if sum(weight for _, weight in s) <= limit)
    assert sum(items[i][0] for i in chosen) == best


@pytest.fixture(scope="module")
def llama():
    small = build(target_of("llama"))
    return small, record(small.model, small.inputs, "llama")


@pytest.mark.parametrize(
    ("limit", "styles"),
    [
        (0, set()),
        (1, {"embedding_rowwise"}),
        (2, {"colwise", "rowwise"}),
        (4, {"colwise", "rowwise"}),
        (9, {"colwise", "rowwise", "embedding_rowwise"}),
    ],
)
def test_a_plan_stays_within_its_collectives(llama, limit, styles):
    small, trace = llama
    plan = plan_within(trace, limit)
    verdict = check_model_on_threads(small.model, plan, small.inputs, 2)
    assert verdict.passed and verdict.collectives <= limit
    assert {rule.style for rule in plan.rules} == styles
    assert cost(trace, plan, resolve(plan, small.model).pieces, 2).collectives == verdict.collectives


def test_more_collectives_never_shard_less(llama):
    small, trace = llama
    plans = [plan_within(trace, limit) for limit in range(7)]
    shares = [cost(trace, plan, resolve(plan, small.model).pieces, 2).sharded for plan in plans]
    assert shares == sorted(shares) and shares[0] == 0
    full = covered(trace, plan_of_trace(trace))
    for plan in plans:
        given_up = {wildcard(name) for name in full - covered(trace, plan)}
        assert {pattern for pattern, reason in plan.whole if reason == SAVED} == given_up
