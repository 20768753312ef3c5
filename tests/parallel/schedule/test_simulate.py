"""The simulation keeps orders and dependencies, and comes out at the figures of the papers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.forecast import Timeline, simulate
from modular_converter.parallel.schedule.orders import SCHEDULES, Action, ActionOrder, Work, inference_order, order_of
from modular_converter.parallel.schedule.stage_costs import PartWork, StageCost


UNIT = StageCost(1.0, 1.0, 1.0, activations=1.0)
WHOLE = ("GPipe", "1F1B")
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@st.composite
def simulated(draw: st.DrawFn) -> tuple[Timeline, list[StageCost], float]:
    """A timeline of any schedule, of sizes that it allows, with costs of all kinds."""
    schedule = draw(st.sampled_from(list(SCHEDULES.values())))
    ranks = draw(st.integers(1, 5))
    per_rank = schedule.usual if schedule.stages[1] else draw(st.integers(1, 3))
    chunks = draw(st.integers(1, 9))
    try:
        order = order_of(schedule, ranks, per_rank, chunks)
    except ScheduleError:
        order = order_of(schedule, ranks, per_rank, 2 * ranks)
    order = inference_order(order) if draw(st.booleans()) else order
    times = st.integers(0, 9)
    costs = [StageCost(*(float(draw(times)) for _ in range(5))) for _ in range(order.stages)]
    transfer = float(draw(st.integers(0, 4)))
    return simulate(order, costs, transfer, draw(st.booleans())), costs, transfer


@quick
@given(simulated())
def test_orders_and_dependencies_are_kept(found):
    line, costs, transfer = found
    ends = {timed.action: timed.end for of_rank in line.ranks for timed in of_rank}
    owner = line.order.stage_ranks
    for rank, of_rank in enumerate(line.ranks):
        assert tuple(timed.action for timed in of_rank) == line.order.actions[rank]
        assert all(before.end <= after.start for before, after in zip(of_rank, of_rank[1:]))
        for timed in of_rank:
            work, stage, chunk = timed.action
            cost = costs[stage]
            took = {Work.FORWARD: cost.forward, Work.INPUT_BACKWARD: cost.input_backward}
            took |= {
                Work.WEIGHT_BACKWARD: cost.weight_backward,
                Work.BACKWARD: cost.input_backward + cost.weight_backward,
            }
            assert timed.end == timed.start + took[work]
            needed = {
                Work.FORWARD: [Action(Work.FORWARD, stage - 1, chunk)],
                Work.WEIGHT_BACKWARD: [Action(Work.INPUT_BACKWARD, stage, chunk)],
            }.get(work)
            later = [Action(kind, stage + 1, chunk) for kind in (Work.BACKWARD, Work.INPUT_BACKWARD)]
            needed = needed or [Action(Work.FORWARD, stage, chunk), *(action for action in later if action in ends)]
            assert work in (Work.FORWARD, Work.WEIGHT_BACKWARD) or len(needed) == 1 + (stage + 1 < line.order.stages)
            for need in needed:
                if 0 <= need.stage < line.order.stages:
                    assert ends[need] + transfer * (owner[need.stage] != rank) <= timed.start


@quick
@given(simulated())
def test_bounds_of_time_and_memory(found):
    line, costs, transfer = found
    order = line.order
    trains = any(action.work is not Work.FORWARD for actions in order.actions for action in actions)
    compute = [cost.compute if trains else cost.forward for cost in costs]
    loads = [0.0] * order.ranks
    for stage, rank in enumerate(order.stage_ranks):
        loads[rank] += order.chunks * compute[stage]
    assert [use.busy for use in line.uses] == loads
    hops = sum(a != b for a, b in zip(order.stage_ranks, order.stage_ranks[1:]))
    through = sum(cost.forward + (cost.input_backward if trains else 0.0) for cost in costs)
    assert line.step >= max(*loads, through + hops * transfer * (2 if trains else 1))
    assert line.speedup <= order.ranks + 1e-9
    for rank, use in enumerate(line.uses):
        own = [stage for stage, owner in enumerate(order.stage_ranks) if owner == rank]
        assert math.isclose(use.bubble, 1 - use.busy / line.step if line.step else 0.0)
        assert 1 <= use.held <= order.chunks * len(own)
        assert use.state == sum(costs[stage].state for stage in own)
        assert use.peak <= use.state + sum(order.chunks * costs[stage].activations for stage in own)
        assert use.peak >= use.state + max(costs[stage].activations for stage in own)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize(("ranks", "chunks"), [(1, 3), (2, 2), (4, 8), (4, 32), (8, 16)])
def test_the_bubble_of_the_textbook(name, ranks, chunks):
    line = simulate(order_of(SCHEDULES[name], ranks, 1, chunks), [UNIT] * ranks)
    for use in line.uses:
        assert math.isclose(use.bubble, (ranks - 1) / (chunks + ranks - 1), abs_tol=1e-12)
    assert math.isclose(line.speedup, ranks * chunks / (chunks + ranks - 1))


@pytest.mark.parametrize(("ranks", "chunks"), [(2, 4), (4, 8), (8, 16)])
@pytest.mark.parametrize("per_rank", [2, 3, 4])
def test_interleaving_divides_the_fill_and_drain(ranks, chunks, per_rank):
    """The ranks idle ``(p - 1) / v`` micro-batches instead of ``p - 1``."""
    line = simulate(order_of(SCHEDULES["Interleaved1F1B"], ranks, per_rank, chunks), [UNIT] * ranks * per_rank)
    assert math.isclose(line.bubble, (ranks - 1) / (per_rank * chunks + ranks - 1))


@pytest.mark.parametrize(("ranks", "chunks"), [(2, 4), (4, 8), (8, 16)])
def test_zero_bubbles_of_the_paper(ranks, chunks):
    """ZB1P idles a third of 1F1B's time, ``(p - 1)`` units of three a micro-batch; ZBV as many of six."""
    one = simulate(order_of(SCHEDULES["InterleavedZeroBubble"], ranks, 1, chunks), [UNIT] * ranks)
    assert math.isclose(one.bubble, (ranks - 1) / (3 * chunks + ranks - 1))
    two = simulate(order_of(SCHEDULES["ZBVZeroBubble"], ranks, 2, chunks), [UNIT] * ranks * 2)
    assert two.step <= 6 * chunks + ranks - 1
    assert {action.work for action in two.order.actions[0]} == set(Work) - {Work.BACKWARD}


@pytest.mark.parametrize(("ranks", "chunks"), [(4, 4), (4, 9), (8, 12)])
def test_micro_batches_held(ranks, chunks):
    uses = simulate(order_of(SCHEDULES["GPipe"], ranks, 1, chunks), [UNIT] * ranks).uses
    assert [use.held for use in uses] == [chunks] * ranks
    uses = simulate(order_of(SCHEDULES["1F1B"], ranks, 1, chunks), [UNIT] * ranks).uses
    assert [use.held for use in uses] == [min(chunks, ranks - rank) for rank in range(ranks)]
    uses = simulate(order_of(SCHEDULES["ZBVZeroBubble"], ranks, 2, 2 * ranks), [UNIT] * ranks * 2).uses
    assert max(use.held for use in uses) <= 2 * ranks  # each of half of a rank's layers
    forward = inference_order(order_of(SCHEDULES["GPipe"], ranks, 1, chunks))
    assert {use.held for use in simulate(forward, [UNIT] * ranks).uses} == {1}


def test_transfers_beside_compute_and_instead_of_it():
    """Two stages, three micro-batches forward: the second starts a transfer later; without overlap the first waits."""
    order = inference_order(order_of(SCHEDULES["GPipe"], 2, 1, 3))
    costs = [StageCost(2.0, 0, 0), StageCost(2.0, 0, 0)]
    assert simulate(order, costs, 1.0).step == 9.0
    assert simulate(order, costs, 1.0, overlaps=False).step == 11.0
    # a link slower than the stages: one transfer at a time sets the pace
    assert simulate(order, costs, 5.0).step == 2 + 3 * 5 + 2


def test_a_circle_is_named():
    first, second = Action(Work.FORWARD, 0, 0), Action(Work.BACKWARD, 0, 0)
    order = order_of(SCHEDULES["GPipe"], 1, 1, 1)
    with pytest.raises(ScheduleError, match="GPipe: the ranks wait for each other, at 0B0"):
        simulate(replace(order, actions=((second, first),)), [UNIT])
    waiting = ActionOrder(
        "mine", 1, (0, 1), ((second, first), (Action(Work.FORWARD, 1, 0), Action(Work.BACKWARD, 1, 0)))
    )
    with pytest.raises(ScheduleError, match="at 0B0, 1F0"):
        simulate(waiting, [UNIT, UNIT])


def peaks(name: str, per_rank: int, chunks: int, *costs: StageCost) -> list[float]:
    order = order_of(SCHEDULES[name], len(costs) // per_rank, per_rank, chunks)
    return [use.peak for use in simulate(order, costs).uses]


def test_gradients_of_weights_come_with_the_first_backward():
    cost = StageCost(1.0, 1.0, 1.0, activations=1.0, state=10.0, gradients=2.0)
    assert peaks("1F1B", 1, 2, cost, cost) == [11.0, 11.0]  # 8 + 2, and a micro-batch
    assert peaks("1F1B", 1, 3, cost, cost) == [12.0, 11.0]
    assert peaks("GPipe", 1, 8, cost, cost) == [17.0, 17.0]  # 8 + 8; one is given up for the gradients of 2


def test_a_backward_in_halves_holds_gradients_in_between():
    cost = StageCost(1.0, 1.0, 1.0, activations=1.0, between_halves=0.5)
    whole = peaks("InterleavedZeroBubble", 1, 4, *[replace(cost, between_halves=0.0)] * 2)
    halves = peaks("InterleavedZeroBubble", 1, 4, cost, cost)
    assert halves[0] == whole[0]  # no backward of inputs on the first stage
    assert halves[1] > whole[1]
    assert peaks("1F1B", 1, 4, cost, cost) == peaks("1F1B", 1, 4, *[replace(cost, between_halves=0.0)] * 2)


def test_the_loss_needs_bytes_while_its_backward_runs():
    cost = StageCost(1.0, 1.0, 1.0, activations=1.0)
    last = replace(cost, temporary=3.0)
    assert peaks("1F1B", 1, 4, cost, last) == [2.0, 4.0]
    assert (cost + last).temporary == 3.0


def test_work_becomes_seconds_and_bytes():
    """A backward of inputs has the products with weights again, and twice those between activations."""
    found = PartWork(60.0, 6.0, 1.0, 5, 7.0, 8.0).cost(2.0, 4.0, 3.0)
    assert found == StageCost(33.0, 36.0, 30.0, 1.0, 20.0, 15.0, 7.0, 8.0)
