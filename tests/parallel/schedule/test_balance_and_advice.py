"""The best balance for a schedule, and the advice about inefficient settings."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.forecast import (
    PipelineSetting,
    balance_by_cost,
    best_balance,
    compare_schedules,
    even_balance,
    forecast,
    simulate,
)
from modular_converter.parallel.schedule.orders import SCHEDULES, order_of
from modular_converter.parallel.schedule.report import advice, schedule_table
from modular_converter.parallel.schedule.stage_costs import NOTHING, ChainCosts, StageCost, even_costs


def layer(seconds: float) -> StageCost:
    return StageCost(seconds, seconds, seconds, activations=seconds, state=10.0)


def every_balance(layers: int, stages: int):
    for cuts in itertools.combinations(range(1, layers), stages - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, layers)))


@settings(max_examples=25, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.integers(1, 9), min_size=4, max_size=7),
    st.integers(0, 30),
    st.sampled_from(["GPipe", "1F1B", "ZBVZeroBubble", "Interleaved1F1B"]),
)
def test_the_best_balance_beside_all_balances(times, head, name):
    """The search is greedy: it finds the best or stays within a tenth, and is never worse than where it starts."""
    costs = ChainCosts(tuple(layer(float(t)) for t in times), after=layer(float(head)))
    schedule = SCHEDULES[name]
    order = order_of(schedule, 2, schedule.usual, 6)
    steps = {b: simulate(order, costs.stages(b)).step for b in every_balance(len(times), order.stages)}
    found = steps[best_balance(order, costs)]
    assert found <= 1.1 * min(steps.values())
    assert found <= min(steps[even_balance(len(times), order.stages)], steps[balance_by_cost(costs, order.stages)])


def test_a_large_head_takes_layers_from_the_last_stage():
    costs = ChainCosts(even_costs(16).layers, after=StageCost(4.0, 4.0, 4.0))
    found = compare_schedules(PipelineSetting("1F1B", 4, 1, 8), costs)
    assert found.chosen.balance == (4, 4, 4, 4)
    assert found.best.balance == (5, 5, 5, 1)
    assert found.best.timeline.step < found.chosen.timeline.step


def test_stages_add_up():
    costs = ChainCosts((layer(1.0), layer(2.0), layer(3.0)), before=layer(10.0), after=layer(100.0))
    first, second = costs.stages((2, 1))
    assert first == StageCost(13.0, 13.0, 13.0, 13.0, 30.0)
    assert second == StageCost(103.0, 103.0, 103.0, 103.0, 20.0)
    assert costs.stages((3,)) == (StageCost(116.0, 116.0, 116.0, 116.0, 50.0),)


@pytest.mark.parametrize(
    ("balance", "said"),
    [
        ((4, 4), "balance 4,4 has 2 numbers, there are 4 stages"),
        ((3, 3, 3, 3), "balance 3,3,3,3 adds up to 12 layers, the model has 8"),
        ((8, 0, 0, 0), "give each stage at least one layer"),
        ((9, -3, 1, 1), "give each stage at least one layer"),
    ],
)
def test_a_balance_that_does_not_fit(balance, said):
    with pytest.raises(ScheduleError, match=said):
        forecast(PipelineSetting("1F1B", 4, 1, 8), even_costs(8), balance)


def test_more_stages_than_layers():
    with pytest.raises(ScheduleError, match="3 layers do not make 4 stages; give at most 3 stages in all"):
        forecast(PipelineSetting("1F1B", 4, 1, 8), even_costs(3))


def test_other_schedules_run_or_say_why_not():
    found = dict(compare_schedules(PipelineSetting("GPipe", 4, 1, 3), even_costs(4)).others)
    assert "at least 4, not 3" in found["1F1B"]
    assert "4 layers do not make 8 stages" in found["ZBVZeroBubble"]
    found = dict(compare_schedules(PipelineSetting("GPipe", 4, 1, 8), even_costs(8)).others)
    bubbles = {name: other.timeline.bubble for name, other in found.items()}
    assert bubbles["InterleavedZeroBubble"] < bubbles["Interleaved1F1B"] < bubbles["1F1B"]


def said_of(setting: PipelineSetting, costs: ChainCosts, balance: tuple[int, ...] = ()) -> str:
    return "\n".join(advice(compare_schedules(setting, costs, balance), costs))


def test_nothing_is_said_of_a_good_setting():
    assert said_of(PipelineSetting("1F1B", 4, 1, 32), even_costs(32)) == ""
    assert said_of(PipelineSetting("GPipe", 1, 1, 1), even_costs(1)) == ""


def test_too_few_micro_batches():
    said = said_of(PipelineSetting("GPipe", 4, 1, 2), even_costs(8))
    assert "idle for 60% of the step; 16 micro-batches of the same size make it 16%" in said
    assert forecast(PipelineSetting("GPipe", 4, 1, 16), even_costs(8)).timeline.bubble == pytest.approx(3 / 19)


def test_a_stage_that_dominates_and_the_balance_that_helps():
    costs = ChainCosts(even_costs(16).layers, after=StageCost(4.0, 4.0, 4.0))
    said = said_of(PipelineSetting("1F1B", 4, 1, 32), costs)
    assert "rank 3 has 1.60 times the mean compute" in said
    assert "--balance 5,5,5,1 shortens the step by" in said


def test_a_head_too_large_for_any_balance():
    costs = ChainCosts(even_costs(4).layers, after=StageCost(20.0, 20.0, 20.0))
    said = said_of(PipelineSetting("1F1B", 4, 1, 32), costs)
    assert "no balance that was found is better" in said
    assert "fewer stages" in said


def test_slow_transfers():
    costs = ChainCosts(even_costs(8).layers, NOTHING, NOTHING, 30.0)
    said = said_of(PipelineSetting("Interleaved1F1B", 4, 2, 8), costs)
    assert "the pipeline does not pay: one device would be" in said
    assert "a transfer between ranks takes 30.0 times the forward pass of a stage" in said
    assert "take fewer stages a rank, fewer ranks or a faster connection" in said
    assert "more micro-batches alone do not change it" in said


def test_a_schedule_that_cannot_run_has_a_row_with_the_reason():
    found = compare_schedules(PipelineSetting("GPipe", 4, 1, 3), even_costs(4))
    _, rows = schedule_table(found)
    assert [row[0] for row in rows] == ["GPipe", *(name for name, _ in found.others)]
    refused = {row[0]: row[1:] for row in rows if row[1] == ""}
    assert refused["1F1B"] == ["", "", "", dict(found.others)["1F1B"]]
