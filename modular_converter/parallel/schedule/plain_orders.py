"""The orders of schedules with whole backward passes: GPipe, 1F1B, interleaved 1F1B and breadth-first."""

from __future__ import annotations

from modular_converter.parallel.schedule.actions import Action, Work, alternated, backwards, forwards


def gpipe(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """All forward passes, then all backward passes."""
    return forwards(rank, range(chunks)) + backwards(rank, range(chunks))


def breadth_first(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """All micro-batches pass a stage of the rank before any enters the rank's next stage; backward in reverse."""
    stages = range(rank, ranks * per_rank, ranks)
    there = [action for stage in stages for action in forwards(stage, range(chunks))]
    back = [action for stage in reversed(stages) for action in backwards(stage, range(chunks)[::-1])]
    return there + back


def one_forward_one_backward(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """A forward pass for each later stage, then forward and backward in turn, then the remaining backward passes."""
    ahead = min(ranks - 1 - rank, chunks)
    there, back = forwards(rank, range(chunks)), backwards(rank, range(chunks))
    return there[:ahead] + alternated(there[ahead:], back) + back[chunks - ahead :]


def interleaved(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """1F1B with several stages on a rank: a group of micro-batches passes all of them before the next group starts."""
    there, back = turns(rank, ranks, per_rank, chunks)
    group = group_size(ranks, chunks)
    ahead = min((per_rank - 1) * group + 2 * (ranks - 1 - rank), len(there))
    return there[:ahead] + alternated(there[ahead:], back) + back[len(back) - ahead :]


def group_size(ranks: int, chunks: int) -> int:
    """The number of micro-batches that pass a stage before the rank turns to its next stage."""
    return chunks // max(1, chunks // ranks)


def turns(rank: int, ranks: int, per_rank: int, chunks: int) -> tuple[list[Action], list[Action]]:
    """The forward passes and the backward passes of a rank, each in order."""
    group = group_size(ranks, chunks)
    stages = range(rank, ranks * per_rank, ranks)
    starts = range(0, chunks, group)
    there = [a for start in starts for stage in stages for a in forwards(stage, range(start, start + group))]
    back = [
        Action(Work.BACKWARD, stage, chunk)
        for start in starts
        for stage in reversed(stages)
        for chunk in range(start, start + group)
    ]
    return there, back
