"""The orders of zero-bubble schedules: the backward of weights runs when its rank would be idle."""

from __future__ import annotations

from modular_converter.parallel.schedule.actions import Action, Work
from modular_converter.parallel.schedule.plain_orders import group_size, turns


def interleaved_zero_bubble(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """ZB1P: interleaved 1F1B; on rank ``n``, a backward of weights runs ``n`` backward passes after that of inputs."""
    there, back = turns(rank, ranks, per_rank, chunks)
    ahead = min((per_rank - 1) * group_size(ranks, chunks) + ranks - 1 - rank, len(there))
    actions = there[:ahead]
    for done, action in enumerate(back):
        actions += there[ahead + done : ahead + done + 1]
        actions.append(action._replace(work=Work.INPUT_BACKWARD))
        if done >= rank:
            actions.append(back[done - rank]._replace(work=Work.WEIGHT_BACKWARD))
    left = max(len(back) - rank, 0)
    return actions + [action._replace(work=Work.WEIGHT_BACKWARD) for action in back[left:]]


class _Turn:
    """The passes of a stage, in the order of the micro-batches."""

    def __init__(self, stage: int) -> None:
        self.stage = stage
        self.next = dict.fromkeys(Work, 0)

    def take(self, *works: Work) -> list[Action]:
        """The next action of each of these kinds of work."""
        actions = [Action(work, self.stage, self.next[work]) for work in works]
        for work in works:
            self.next[work] += 1
        return actions


def zbv(rank: int, ranks: int, per_rank: int, chunks: int) -> list[Action]:
    """ZBV: two stages on each rank, in the shape of a V, so that the last stage is on the rank of the first.

    The order is made for at least ``2 * ranks - 1`` micro-batches, without the actions of those beyond ``chunks``.
    """
    forward, inner, weight = Work.FORWARD, Work.INPUT_BACKWARD, Work.WEIGHT_BACKWARD
    many = max(2 * ranks - 1, chunks)
    down, up = _Turn(rank), _Turn(2 * ranks - 1 - rank)
    actions = [action for _ in range(2 * (ranks - rank) - 1) for action in down.take(forward)]
    for _ in range(rank):
        actions += up.take(forward) + down.take(forward)
    for _ in range(ranks - rank):
        actions += up.take(forward, inner, weight)
    while up.next[forward] < many:
        if down.next[forward] < many:
            actions += down.take(forward)
        actions += down.take(inner, weight) + up.take(forward, inner, weight)
    for _ in range(rank):
        actions += down.take(inner) + up.take(inner)
    for _ in range(ranks - rank):
        actions += down.take(inner, weight)
    for turn in (up, down):
        while turn.next[weight] < many:
            actions += turn.take(weight)
    return [action for action in actions if action.chunk < chunks]
