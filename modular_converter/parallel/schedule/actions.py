"""The actions of a pipeline schedule, and the order in which each rank takes them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Work(enum.Enum):
    """A kind of action. The letters are those that torch prints."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_BACKWARD = "I"
    WEIGHT_BACKWARD = "W"


class Action(NamedTuple):
    """One pass of one micro-batch through one stage; both count from 0."""

    work: Work
    stage: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.stage}{self.work.value}{self.chunk}"


@dataclass(frozen=True)
class ActionOrder:
    """The actions of each rank, in the order in which the rank takes them.

    Attributes:
        schedule: its name, as torch calls it.
        chunks: the number of micro-batches.
        stage_ranks: the rank that holds each stage.
        actions: one sequence a rank.
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


def forwards(stage: int, chunks: Sequence[int]) -> list[Action]:
    """The forward passes of these micro-batches through one stage."""
    return [Action(Work.FORWARD, stage, chunk) for chunk in chunks]


def backwards(stage: int, chunks: Sequence[int]) -> list[Action]:
    """The whole backward passes of these micro-batches through one stage."""
    return [Action(Work.BACKWARD, stage, chunk) for chunk in chunks]


def alternated(first: Sequence[Action], second: Sequence[Action]) -> list[Action]:
    """One of the first, one of the second, and so on. Both have the same length."""
    return [action for pair in zip(first, second) for action in pair]


def inference_order(order: ActionOrder) -> ActionOrder:
    """The forward passes of an order alone."""
    kept = tuple(tuple(a for a in actions if a.work is Work.FORWARD) for actions in order.actions)
    return ActionOrder(order.schedule, order.chunks, order.stage_ranks, kept)
