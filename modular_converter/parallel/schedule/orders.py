"""The schedules by name, the sizes that each allows, and the order of the actions of each rank, read from torch."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

from modular_converter.parallel.errors import ScheduleError


class Work(enum.Enum):
    """A kind of action, with the letter that torch prints."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_BACKWARD = "I"
    WEIGHT_BACKWARD = "W"


class Action(NamedTuple):
    """A pass of a micro-batch through a stage; both numbers count from 0."""

    work: Work
    stage: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.stage}{self.work.value}{self.chunk}"


@dataclass(frozen=True)
class ActionOrder:
    """The actions of each rank, in order.

    Attributes:
        schedule: its name in torch.
        chunks: the number of micro-batches.
        stage_ranks: the rank of each stage.
        actions: of each rank.
    """

    schedule: str
    chunks: int
    stage_ranks: tuple[int, ...]
    actions: tuple[tuple[Action, ...], ...]

    @property
    def ranks(self) -> int:
        return len(self.actions)

    @property
    def stages(self) -> int:
        return len(self.stage_ranks)


def inference_order(order: ActionOrder) -> ActionOrder:
    """The order without its backward passes."""
    kept = tuple(tuple(a for a in actions if a.work is Work.FORWARD) for actions in order.actions)
    return ActionOrder(order.schedule, order.chunks, order.stage_ranks, kept)


@dataclass(frozen=True)
class PipelineSchedule:
    """A schedule of torch and the sizes that it allows.

    Attributes:
        name: for torch's ``get_schedule_class``.
        stages: the least and the most stages of a rank; None for no limit.
        usual: the default number of stages of a rank.
        also: other names, in lower case.
        in_groups: whether the micro-batches pass in groups of equal size.
        fills: whether there must be a micro-batch for each stage.
        steady: whether a rank that has begun its backwards holds no more, however many micro-batches follow.
        v_shaped: whether the second half of the stages is on the ranks in reverse order.
    """

    name: str
    stages: tuple[int, int | None]
    usual: int
    also: tuple[str, ...] = ()
    in_groups: bool = False
    fills: bool = False
    steady: bool = False
    v_shaped: bool = False


_ALL = (
    PipelineSchedule("GPipe", (1, 1), 1),
    PipelineSchedule("1F1B", (1, 1), 1, fills=True, steady=True),
    PipelineSchedule("Interleaved1F1B", (1, None), 2, ("interleaved",), in_groups=True, steady=True),
    PipelineSchedule("LoopedBFS", (1, None), 2, ("breadth-first", "bfs")),
    PipelineSchedule("InterleavedZeroBubble", (1, None), 2, ("zb1p",), in_groups=True),
    PipelineSchedule("ZBVZeroBubble", (2, 2), 2, ("zbv",), v_shaped=True),
    PipelineSchedule("DualPipeV", (2, 2), 2, fills=True, v_shaped=True),
)
SCHEDULES = {schedule.name: schedule for schedule in _ALL}
"""Torch's name -> schedule."""


def schedule_named(name: str) -> PipelineSchedule:
    """The schedule of a name, in any case. Raises ``ScheduleError`` with the known names."""
    for schedule in _ALL:
        if name.lower() in (schedule.name.lower(), *schedule.also):
            return schedule
    known = ", ".join(" or ".join((schedule.name, *schedule.also)) for schedule in _ALL)
    raise ScheduleError(f"unknown schedule {name!r}; known: {known}")


@functools.lru_cache(64)
def order_of(schedule: PipelineSchedule, ranks: int, per_rank: int, chunks: int) -> ActionOrder:
    """The order of a schedule. Imports torch.

    Args:
        per_rank: the number of stages of each rank.
        chunks: the number of micro-batches of a step.

    Raises ``ScheduleError`` if the schedule does not allow these sizes; the message names sizes that it allows.
    """
    from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class

    from modular_converter.parallel.torch_private import order_alone

    check_sizes(schedule, ranks, per_rank, chunks)
    sizes = {"num_stages": ranks * per_rank, "group_size": ranks, "group_rank": 0, "has_backward": True}
    stages = [SimpleNamespace(stage_index=index, submod=None, **sizes) for index in range(per_rank)]
    kind: Any = get_schedule_class(schedule.name)
    is_single = issubclass(kind, PipelineScheduleSingle)
    made = order_alone(kind)(stages[0] if is_single else stages, chunks)
    places = {stage: stage for stage in range(ranks)} if is_single else made.stage_index_to_group_rank
    orders = (tuple(_actions(made.pipeline_order[rank], chunks, is_single)) for rank in range(ranks))
    return ActionOrder(schedule.name, chunks, tuple(places[stage] for stage in sorted(places)), tuple(orders))


def _actions(order: list[Any], chunks: int, renumbered: bool) -> Iterator[Action]:
    """The computations in torch's order of a rank, a forward before the backward that it overlaps.

    Args:
        renumbered: whether passes are numbered as they come: torch's list of 1F1B begins at 1 on the last rank, its run at 0.
    """
    letters = {work.value: work for work in Work}
    passes = dict.fromkeys(Work, 0)
    for listed in filter(None, order):
        for action in listed.sub_actions or (listed,):
            work = letters.get(action.computation_type.value)
            if work is not None:
                chunk = passes[work] if renumbered else action.microbatch_index
                passes[work] += 1
                if chunk < chunks:
                    yield Action(work, action.stage_index, chunk)


def check_sizes(schedule: PipelineSchedule, ranks: int, per_rank: int, chunks: int) -> None:
    """Raise ``ScheduleError`` if a schedule does not allow these sizes; the message names sizes that it allows."""
    if min(ranks, per_rank, chunks) < 1:
        raise ScheduleError(f"{schedule.name}: ranks, stages a rank and micro-batches must each be at least 1")
    least, most = schedule.stages
    if per_rank < least or (most is not None and per_rank > most):
        others = ", ".join(s.name for s in _ALL if s.stages[0] <= per_rank <= (s.stages[1] or per_rank))
        raise ScheduleError(
            f"{schedule.name} has {least} {'stage' if least == 1 else 'stages'} a rank, not {per_rank}; "
            f"with {per_rank} a rank you can choose {others}"
        )
    if schedule.fills and chunks < ranks * per_rank:
        raise ScheduleError(
            f"{schedule.name} needs a micro-batch for each stage: at least {ranks * per_rank}, not {chunks}; "
            f"{'GPipe' if per_rank == 1 else 'LoopedBFS'} works with {chunks}"
        )
    if schedule.in_groups and not _divides(ranks, chunks):
        less = next(n for n in range(chunks, 0, -1) if _divides(ranks, n))
        more = next(n for n in range(chunks, 2 * (chunks + ranks)) if _divides(ranks, n))
        raise ScheduleError(
            f"{schedule.name} passes {chunks} micro-batches in {chunks // ranks} groups of equal size over {ranks} "
            f"ranks, which do not divide them; {less} or {more} micro-batches work"
        )


def _divides(ranks: int, chunks: int) -> bool:
    return chunks % max(1, chunks // ranks) == 0
