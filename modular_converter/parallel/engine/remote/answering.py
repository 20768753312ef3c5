"""A rank's answers on their way to the main process: packed, timed, and checked when the device is done."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from modular_converter.parallel.engine.ranks.gpu_results import ResultBuffer
from modular_converter.parallel.engine.ranks.packing import pack
from modular_converter.parallel.engine.ranks.protocol import ANSWER, EARLY, FAILURE, FATAL, SECONDS, UNSENT
from modular_converter.parallel.engine.ranks.shared_memory import Arena
from modular_converter.parallel.engine.remote.same_answers import DifferentAnswers
from modular_converter.parallel.errors import ApplyError


# After an error inside a kernel, a device answers nothing but this error.
_DEVICE_ERRORS = (torch.AcceleratorError,) if hasattr(torch, "AcceleratorError") else ()


class Answering:
    """The half of a rank's worker that sends answers."""

    def __init__(self, pipe: Connection, device: torch.device, up: Arena, clock: Callable[[], float]) -> None:
        self.pipe, self.device, self.up, self.clock = pipe, device, up, clock
        self.results = ResultBuffer()
        self.arrived = 0.0

    def answer(
        self,
        value: Any,
        held: dict[int, int] | None = None,
        share: bool = False,
        check: Callable[[], None] | None = None,
    ) -> bool:
        """Send an answer with its seconds, or the error that prevents it. Returns whether the answer was sent.

        Args:
            held: identity of an object that stays here -> its number.
            share: whether the receiver wants the tensors on its GPU.
            check: called when the device is done; raises if the answer may not leave the ranks.
        """
        sent = True
        try:
            data = (self._packed_while_working if share else self._packed)(value, held, check or (lambda: None))
        except (ApplyError, DifferentAnswers) as error:
            sent, data = False, failure(error)
        except Exception as error:
            sent, data = False, failure(error, UNSENT)
        self.pipe.send_bytes(data)
        return sent

    def _packed(self, value: Any, held: dict[int, int] | None, check: Callable[[], None]) -> bytes:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        check()
        took = self.clock() - self.arrived
        return ANSWER + SECONDS.pack(took) + pack(value, self.up, held)

    def _packed_while_working(self, value: Any, held: dict[int, int] | None, check: Callable[[], None]) -> bytes:
        """Pack for a receiver on the GPU, which reads the answer while the GPU still works; copies are queued."""
        work = torch.cuda.Event()  # type: ignore[no-untyped-call]
        work.record()
        took = self.clock() - self.arrived
        data = pack(value, self.up, held, self.results)
        if not work.query():  # type: ignore[no-untyped-call]
            self.pipe.send_bytes(EARLY + data)
            data = b""
            work.synchronize()
            took = self.clock() - self.arrived
        torch.cuda.synchronize(self.device)  # the main process reads the result buffer on a stream of its own
        check()
        return ANSWER + SECONDS.pack(took) + data


def failure(error: Exception, kind: bytes = FAILURE) -> bytes:
    """The message of an error; of kind ``FATAL`` if the ranks cannot go on after it."""
    ends = isinstance(error, (DifferentAnswers, *_DEVICE_ERRORS))
    return (FATAL if ends else kind) + pickle.dumps((traceback.format_exc(), _plain(error)))


def _plain(error: BaseException) -> Any:
    """The exception, if it can be pickled; else None."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return None
