"""The order of each schedule is torch's own, and sizes that a schedule forbids are refused with sizes that work.

For GPipe and 1F1B the oracle is what torch runs, recorded from stages without a model: what it prints for them has
micro-batches that do not exist, in 1F1B on the last rank. For the others it is the order that its runtime follows.
"""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.actions import Work, inference_order
from modular_converter.parallel.schedule.orders import SCHEDULES, order_of, schedule_named


SIZES = list(itertools.product((1, 2, 3, 4, 6), (1, 2, 3), (1, 2, 4, 5, 9, 12)))
"""Ranks, stages a rank, micro-batches."""


class EmptyStage(PipelineStage):
    """A stage without a model, which notes what its schedule asks of it."""

    def __init__(self, index: int, ranks: int, stages: int) -> None:
        self.stage_index, self.num_stages, self.group_size, self.group_rank = index, stages, ranks, index % ranks
        self.group, self.has_backward, self.submod = None, True, torch.nn.Identity()
        self.stage_index_to_group_rank = {stage: stage % ranks for stage in range(stages)}
        self.ran: list[str] = []

    def forward_one_chunk(self, chunk, *args, **kwargs):
        self.ran.append(f"{self.stage_index}F{chunk}")

    def backward_one_chunk(self, chunk, *args, **kwargs):
        self.ran.append(f"{self.stage_index}B{chunk}")

    def _nothing(self, *args, **kwargs):
        return []

    get_fwd_recv_ops = get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = _nothing
    scale_grads = perform_reduce_grad = clear_runtime_states = _nothing


def torch_order(name: str, ranks: int, per_rank: int, chunks: int) -> list[list[str]] | str:
    """What torch's class runs or follows on each rank; or how it refuses the sizes."""
    kind = get_schedule_class(name)
    stages = [EmptyStage(index, ranks, ranks * per_rank) for index in range(ranks * per_rank)]
    try:
        if issubclass(kind, PipelineScheduleSingle):
            return [_ran(kind(stage, chunks), stage) for stage in stages]
        built = kind(stages[::ranks], chunks)
    except ValueError as error:
        return f"refused: {error}"
    return [[str(action) for action in built.pipeline_order[rank] if action] for rank in range(ranks)]


def _ran(schedule: PipelineScheduleSingle, stage: EmptyStage) -> list[str]:
    schedule._initialize_stage = lambda *args, **kwargs: None
    schedule._stage_forward_initialized = schedule._stage_backward_initialized = True
    schedule._step_microbatches([()] * schedule._n_microbatches)
    return stage.ran


@pytest.fixture(autouse=True)
def quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_order_is_that_of_torch(name):
    compared = refused = 0
    least, most = SCHEDULES[name].stages
    for size in SIZES:
        if not least <= size[1] <= (most or size[1]):
            continue
        want = torch_order(name, *size)
        try:
            found = [[str(action) for action in actions] for actions in order_of(SCHEDULES[name], *size).actions]
        except ScheduleError:
            assert isinstance(want, str), size
            refused += 1
        else:
            assert found == want, size
            compared += 1
    assert compared >= 20
    assert bool(refused) == (SCHEDULES[name].in_groups or SCHEDULES[name].fills)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("ranks", "chunks"), [(1, 1), (2, 6), (4, 4), (4, 10), (5, 12)])
def test_every_pass_happens_once(name, ranks, chunks):
    per_rank = SCHEDULES[name].usual
    order = order_of(SCHEDULES[name], ranks, per_rank, chunks)
    actions = [action for of_rank in order.actions for action in of_rank]
    assert len(set(actions)) == len(actions)
    works = {action.work for action in actions}
    split = {Work.FORWARD, Work.INPUT_BACKWARD, Work.WEIGHT_BACKWARD}
    assert works in ({Work.FORWARD, Work.BACKWARD}, split)
    assert len(actions) == len(works) * ranks * per_rank * chunks
    for rank, of_rank in enumerate(order.actions):
        assert {order.stage_ranks[action.stage] for action in of_rank} == {rank}
    assert {action.work for of_rank in inference_order(order).actions for action in of_rank} == {Work.FORWARD}


def test_a_name_in_any_case_and_the_names_of_papers():
    assert schedule_named("gpipe").name == "GPipe"
    assert schedule_named("ZBVZEROBUBBLE").name == schedule_named("zbv").name == "ZBVZeroBubble"
    assert schedule_named("breadth-first").name == schedule_named("loopedbfs").name
    with pytest.raises(
        ScheduleError, match=r"unknown schedule 'dualpipe'; known: GPipe, 1F1B, Interleaved1F1B or inter"
    ):
        schedule_named("dualpipe")


def test_the_names_are_those_that_torch_knows():
    for name in SCHEDULES:
        assert get_schedule_class(name)


def test_micro_batches_that_do_not_divide_are_told_which_numbers_work():
    with pytest.raises(ScheduleError, match=r"9 micro-batches in 2 groups .* 4 ranks.*; 8 or 10 micro-batches work"):
        order_of(SCHEDULES["Interleaved1F1B"], 4, 2, 9)
    for chunks in (8, 10):
        order_of(SCHEDULES["Interleaved1F1B"], 4, 2, chunks)


def test_1f1b_wants_a_micro_batch_for_each_stage():
    with pytest.raises(ScheduleError, match=r"at least 4, not 3; GPipe works with 3"):
        order_of(SCHEDULES["1F1B"], 4, 1, 3)


@pytest.mark.parametrize(
    ("name", "per_rank", "said"),
    [
        ("1F1B", 2, "1F1B has 1 stage a rank, not 2; with 2 a rank you can choose Interleaved1F1B, LoopedBFS, Inter"),
        (
            "ZBVZeroBubble",
            1,
            "ZBVZeroBubble has 2 stages a rank, not 1; with 1 a rank you can choose GPipe, 1F1B, Int",
        ),
    ],
)
def test_stages_a_rank_that_a_schedule_forbids(name, per_rank, said):
    with pytest.raises(ScheduleError, match=said):
        order_of(SCHEDULES[name], 4, per_rank, 8)


@pytest.mark.parametrize("size", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_nothing_is_no_size(size):
    with pytest.raises(ScheduleError, match="must each be at least 1"):
        order_of(SCHEDULES["GPipe"], *size)
