"""The actions of a pipeline schedule, and their order on each rank."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


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


def forwards(stage: int, chunks: Sequence[int]) -> list[Action]:
    """The forward passes of micro-batches through a stage."""
    return [Action(Work.FORWARD, stage, chunk) for chunk in chunks]


def backwards(stage: int, chunks: Sequence[int]) -> list[Action]:
    """The whole backward passes of micro-batches through a stage."""
    return [Action(Work.BACKWARD, stage, chunk) for chunk in chunks]


def alternated(first: Sequence[Action], second: Sequence[Action]) -> list[Action]:
    """Actions of two sequences of the same length in turn."""
    return [action for pair in zip(first, second) for action in pair]


def inference_order(order: ActionOrder) -> ActionOrder:
    """The order without its backward passes."""
    kept = tuple(tuple(a for a in actions if a.work is Work.FORWARD) for actions in order.actions)
    return ActionOrder(order.schedule, order.chunks, order.stage_ranks, kept)
