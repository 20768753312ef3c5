"""The schedules by name, the sizes that each allows, and its order of actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.actions import Action, ActionOrder
from modular_converter.parallel.schedule.plain_orders import (
    breadth_first,
    gpipe,
    interleaved,
    one_forward_one_backward,
)
from modular_converter.parallel.schedule.zero_bubble_orders import interleaved_zero_bubble, zbv


@dataclass(frozen=True)
class PipelineSchedule:
    """A schedule and the sizes that it allows.

    Attributes:
        name: for torch's ``get_schedule_class``.
        build: (rank, number of ranks, stages of each rank, micro-batches) -> the actions of the rank.
        stages: the least and the most stages of a rank; None for no limit.
        usual: the default number of stages of a rank.
        also: other names, in lower case.
        in_groups: whether the micro-batches pass in groups of equal size.
        fills: whether there must be a micro-batch for each stage.
        v_shaped: whether the second half of the stages is on the ranks in reverse order.
    """

    name: str
    build: Callable[[int, int, int, int], list[Action]]
    stages: tuple[int, int | None]
    usual: int
    also: tuple[str, ...] = ()
    in_groups: bool = False
    fills: bool = False
    v_shaped: bool = False


_ALL = (
    PipelineSchedule("GPipe", gpipe, (1, 1), 1),
    PipelineSchedule("1F1B", one_forward_one_backward, (1, 1), 1, fills=True),
    PipelineSchedule("Interleaved1F1B", interleaved, (1, None), 2, ("interleaved",), in_groups=True),
    PipelineSchedule("LoopedBFS", breadth_first, (1, None), 2, ("breadth-first", "bfs")),
    PipelineSchedule("InterleavedZeroBubble", interleaved_zero_bubble, (1, None), 2, ("zb1p",), in_groups=True),
    PipelineSchedule("ZBVZeroBubble", zbv, (2, 2), 2, ("zbv",), v_shaped=True),
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


def order_of(schedule: PipelineSchedule, ranks: int, per_rank: int, chunks: int) -> ActionOrder:
    """The order of a schedule.

    Args:
        per_rank: the number of stages of each rank.
        chunks: the number of micro-batches of a step.

    Raises ``ScheduleError`` if the schedule does not allow these sizes; the message names sizes that it allows.
    """
    check_sizes(schedule, ranks, per_rank, chunks)
    stages = ranks * per_rank
    held = tuple(min(stage, stages - 1 - stage) if schedule.v_shaped else stage % ranks for stage in range(stages))
    actions = tuple(tuple(schedule.build(rank, ranks, per_rank, chunks)) for rank in range(ranks))
    return ActionOrder(schedule.name, chunks, held, actions)


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
    if schedule.fills and chunks < ranks:
        raise ScheduleError(
            f"{schedule.name} needs a micro-batch for each stage: at least {ranks}, not {chunks}; "
            f"GPipe works with {chunks}"
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
