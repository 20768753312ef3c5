"""Receives that are posted late leave the order of messages and of computations alone, and no rank waits for ever."""

from __future__ import annotations

import itertools
import logging

import pytest
from torch.distributed.pipelining.schedules import get_schedule_class

from modular_converter.parallel.engine.stages.scheduled_stage import late_receives, with_late_receives
from modular_converter.parallel.schedule.orders import SCHEDULES
from tests.parallel.schedule.test_orders import EmptyStage


NAMES = ("LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV")
SIZES = tuple(itertools.product((2, 3, 4), (2, 3), (2, 4, 6, 12)))
"""Ranks, stages a rank, micro-batches."""


def schedules(name):
    """What torch builds for each size that it allows."""
    kind = get_schedule_class(name)
    for ranks, per_rank, chunks in SIZES:
        if per_rank > (SCHEDULES[name].stages[1] or per_rank):
            continue
        stages = [EmptyStage(index, ranks, ranks * per_rank) for index in range(ranks * per_rank)]
        try:
            yield kind(stages[::ranks], chunks)
        except ValueError:
            continue


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def is_message(action) -> bool:
    return action.computation_type.name.startswith(("SEND", "RECV"))


def unfinished(orders, rank_of) -> list[str]:
    """What never happens where messages are handed over one by one, and a rank's next waits until its last is taken."""
    left = {rank: list(order) for rank, order in orders.items()}
    posted = {rank: [] for rank in orders}
    arrived = set()
    moves = True
    while moves:
        moves = False
        for rank, order in left.items():
            while order and (is_message(order[0]) or is_ready(order[0], arrived, rank_of)):
                action = order.pop(0)
                moves = True
                if is_message(action):
                    posted[rank].append(action)
        for sender, receiver in itertools.permutations(posted, 2):
            if posted[sender] and posted[receiver] and fits(posted[sender][0], posted[receiver][0]):
                posted[sender].pop(0)
                arrived.add(posted[receiver].pop(0))
                moves = True
    return [str(one) for one in (*itertools.chain(*left.values()), *itertools.chain(*posted.values()))]


def fits(send, receive) -> bool:
    """Whether a rank gets what it waits for."""
    step = {"SEND_F": ("RECV_F", 1), "SEND_B": ("RECV_B", -1)}.get(send.computation_type.name)
    kind = (receive.computation_type.name, receive.stage_index - send.stage_index)
    return step == kind and send.microbatch_index == receive.microbatch_index


def is_ready(action, arrived, rank_of) -> bool:
    """Whether a computation has its message; those between stages of one rank need none."""
    if action.sub_actions:
        return all(is_ready(one, arrived, rank_of) for one in action.sub_actions)
    kind = action.computation_type.name
    step = {"FORWARD": -1, "FULL_BACKWARD": 1, "BACKWARD_INPUT": 1}.get(kind)
    if step is None or rank_of.get(action.stage_index + step, rank := rank_of[action.stage_index]) == rank:
        return True
    wanted = (action.stage_index, "RECV_F" if step < 0 else "RECV_B", action.microbatch_index)
    return wanted in {(a.stage_index, a.computation_type.name, a.microbatch_index) for a in arrived}


def test_a_changed_order_of_receives_is_noticed():
    """Two receives in the order of their use, as ``defer_pp_recv`` of torch posts them."""
    stuck = 0
    for schedule in schedules("ZBVZeroBubble"):
        orders = {rank: late_receives(order) for rank, order in schedule.pipeline_order_with_comms.items()}
        for order in orders.values():
            for place, (one, other) in enumerate(itertools.pairwise(order)):
                if [one.computation_type.name[:4], other.computation_type.name[:4]] == ["RECV", "RECV"]:
                    order[place : place + 2] = [other, one]
                    break
        stuck += bool(unfinished(orders, schedule.stage_index_to_group_rank))
    assert stuck


@pytest.mark.parametrize("name", NAMES)
def test_messages_and_computations_keep_their_orders(name):
    moved = 0
    for schedule in schedules(name):
        before = {rank: list(order) for rank, order in schedule.pipeline_order_with_comms.items()}
        with_late_receives(schedule)
        for rank, order in schedule.pipeline_order_with_comms.items():
            assert [a for a in order if is_message(a)] == [a for a in before[rank] if is_message(a)]
            assert [a for a in order if not is_message(a)] == [a for a in before[rank] if not is_message(a)]
            moved += order != before[rank]
        assert not unfinished(schedule.pipeline_order_with_comms, schedule.stage_index_to_group_rank)
    assert moved


@pytest.mark.parametrize("name", NAMES)
def test_a_receive_stands_before_a_message_or_the_computation_that_takes_it(name):
    for schedule in schedules(name):
        for order in schedule.pipeline_order_with_comms.values():
            late = late_receives(order)
            for one, following in itertools.pairwise(late):
                if one.computation_type.name.startswith("RECV") and not is_message(following):
                    parts = following.sub_actions or (following,)
                    earlier = itertools.takewhile(is_message, reversed(late[: late.index(following)]))
                    taken = {(a.stage_index, a.microbatch_index) for a in parts}
                    assert taken & {(a.stage_index, a.microbatch_index) for a in earlier}
