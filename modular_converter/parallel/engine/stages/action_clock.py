"""The times at which the actions of a step start and end on this process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed import pipelining

from modular_converter.parallel.schedule.orders import Action, Work
from modular_converter.parallel.schedule.simulate import Timed


class Clock:
    """Points in time of a device.

    On a GPU these are events in its stream, which time the work and not its launch; work after a transfer starts when the
    data has arrived.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_gpu = device.type == "cuda"

    def now(self) -> Any:
        """The present point in time."""
        if not self._is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two points. Waits until the device has reached both."""
        if not self._is_gpu:
            return float(end - start)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


class ActionClock:
    """Records the actions of one process while it is on.

    Attributes:
        device: of the process.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._clock = Clock(device)
        self._is_on = False
        self._start: Any = None
        self._noted: list[tuple[Action, Any, Any]] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record actions within this context, and forget earlier ones."""
        self._noted, self._start, self._is_on = [], self._clock.now(), True
        try:
            yield
        finally:
            self._is_on = False

    @contextmanager
    def action(self, work: Work, stage: int, chunk: int) -> Iterator[None]:
        """Record an action, if the clock is on."""
        if not self._is_on:
            yield
            return
        began = self._clock.now()
        yield
        self._noted.append((Action(work, stage, chunk), began, self._clock.now()))

    def timed(self) -> tuple[Timed, ...]:
        """The recorded actions in order, with seconds since the clock was put on."""
        seconds = self._clock.seconds
        return tuple(Timed(one, seconds(self._start, a), seconds(self._start, b)) for one, a, b in self._noted)


class ClockedStage(pipelining.PipelineStage):
    """A stage of torch whose actions a clock records."""

    def __init__(self, *args: Any, clock: ActionClock, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clock = clock

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self.clock.action(Work.FORWARD, self.stage_index, fwd_chunk_id):
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        work = Work.BACKWARD if full_backward else Work.INPUT_BACKWARD
        with self.clock.action(work, self.stage_index, bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        with self.clock.action(Work.WEIGHT_BACKWARD, self.stage_index, bwd_chunk_id):
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)
