"""The orders of schedules with whole backward passes: GPipe, 1F1B, interleaved 1F1B and breadth-first."""

from __future__ import annotations

from modular_converter.parallel.schedule.actions import Action, Work, alternated, backwards, forwards


def gpipe(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """All forward passes, then all backward passes."""
    return forwards(rank, range(chunks)) + backwards(rank, range(chunks))


def breadth_first(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """All micro-batches through one stage of the rank before any enters its next stage; backward in reverse."""
    stages = range(rank, ranks * per_rank, ranks)
    there = [action for stage in stages for action in forwards(stage, range(chunks))]
    back = [action for stage in reversed(stages) for action in backwards(stage, range(chunks)[::-1])]
    return there + back


def one_forward_one_backward(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """As many forward passes as stages follow, then one forward and one backward in turn, then the rest backward."""
    ahead = min(ranks - 1 - rank, chunks)
    there, back = forwards(rank, range(chunks)), backwards(rank, range(chunks))
    return there[:ahead] + alternated(there[ahead:], back) + back[chunks - ahead :]


def interleaved(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """1F1B over several stages of a rank: a group of micro-batches passes them all before the next group starts."""
    there, back = turns(rank, ranks, per_rank, chunks)
    group = group_size(ranks, chunks)
    ahead = min((per_rank - 1) * group + 2 * (ranks - 1 - rank), len(there))
    return there[:ahead] + alternated(there[ahead:], back) + back[len(back) - ahead :]


def group_size(ranks: int, chunks: int) -> int:
    """How many micro-batches follow each other through one stage before the rank turns to its next stage."""
    return chunks // max(1, chunks // ranks)


def turns(rank: int, ranks: int, per_rank: int, chunks: int) -> tuple[list[Action], list[Action]]:
    """The forward and the backward passes of one rank, each in its own order."""
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
