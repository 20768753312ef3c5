"""The order of each schedule is what torch runs, and sizes that a schedule forbids are refused with sizes that work.

torch's runtime follows the list from which orders are read, but for GPipe and 1F1B: there the oracle is what stages
without a model are asked to do.
"""

from __future__ import annotations

import itertools
import logging

import pytest
import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.orders import SCHEDULES, Work, inference_order, order_of, schedule_named


SIZES = list(itertools.product((1, 2, 3, 6), (1, 2, 3), (1, 4, 5, 9, 12)))
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


@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("chunks", [6, 9, 12])
def test_the_order_is_what_torch_runs(name, ranks, chunks):
    kind = get_schedule_class(name)
    assert issubclass(kind, PipelineScheduleSingle)
    stages = [EmptyStage(index, ranks, ranks) for index in range(ranks)]
    found = order_of(SCHEDULES[name], ranks, 1, chunks)
    assert [[str(action) for action in actions] for actions in found.actions] == [
        _ran(kind(stage, chunks), stage) for stage in stages
    ]


@pytest.mark.parametrize("name", SCHEDULES)
def test_sizes_are_refused_here_and_not_by_torch(name):
    least, most = SCHEDULES[name].stages
    made = refused = 0
    for size in SIZES:
        if not least <= size[1] <= (most or size[1]):
            continue
        try:
            order_of(SCHEDULES[name], *size)
        except ScheduleError:
            refused += 1
        else:
            made += 1
    assert made >= 10
    assert bool(refused) == (SCHEDULES[name].in_groups or SCHEDULES[name].fills)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("ranks", "chunks"), [(1, 2), (2, 6), (4, 8), (4, 10), (5, 12)])
def test_every_pass_happens_once(name, ranks, chunks):
    per_rank = SCHEDULES[name].usual
    order = order_of(SCHEDULES[name], ranks, per_rank, chunks)
    actions = [action for of_rank in order.actions for action in of_rank]
    assert len(set(actions)) == len(actions)
    passes = {(stage, chunk) for stage in range(ranks * per_rank) for chunk in range(chunks)}
    done = {work: {(a.stage, a.chunk) for a in actions if a.work is work} for work in Work}
    assert done[Work.FORWARD] == done[Work.BACKWARD] | done[Work.INPUT_BACKWARD] == passes
    assert done[Work.INPUT_BACKWARD] == done[Work.WEIGHT_BACKWARD]
    assert not done[Work.BACKWARD] & done[Work.INPUT_BACKWARD]
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


def test_some_want_a_micro_batch_for_each_stage():
    with pytest.raises(ScheduleError, match=r"at least 4, not 3; GPipe works with 3"):
        order_of(SCHEDULES["1F1B"], 4, 1, 3)
    with pytest.raises(ScheduleError, match=r"at least 8, not 7; LoopedBFS works with 7"):
        order_of(SCHEDULES["DualPipeV"], 4, 2, 7)


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
