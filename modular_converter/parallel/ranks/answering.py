"""The worker of a rank: it answers messages, packed, timed, and checked when the device is done."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.ranks.packing import ResultBuffer, pack, unpack
from modular_converter.parallel.ranks.protocol import (
    ANSWER,
    EARLY,
    FAILURE,
    FATAL,
    SECONDS,
    UNSENT,
    Arena,
    Progress,
)


class DifferentAnswers(Exception):
    """The ranks no longer agree, and must all be ended."""


class Answering:
    """A worker that answers messages ``(kind, ...)`` with its methods ``on_kind``: each sends one answer, ``FORGET`` none."""

    def __init__(
        self,
        pipe: Connection,
        device: torch.device,
        down: Arena,
        up: Arena,
        progress: Progress,
        clock: Callable[[], float],
    ) -> None:
        self.pipe, self.device, self.down, self.up = pipe, device, down, up
        self.progress, self.clock = progress, clock
        self.results = ResultBuffer()
        self.arrived = 0.0

    def handle(self, data: bytes) -> None:
        """Run one message and answer it."""
        self.arrived = self.clock()
        try:
            kind, *rest = unpack(data, self.down, self.device, self.resolve)
            getattr(self, f"on_{kind}")(*rest)
        except Exception as error:  # each message must get an answer
            self.pipe.send_bytes(failure(error))

    def resolve(self, pid: Any) -> Any:
        """The object of a message that stays here; see ``unpack``."""
        raise ApplyError(f"a message contains an object that is not here: {pid}")

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
    # After an error inside a kernel, a device answers nothing but this error.
    ends = isinstance(error, (DifferentAnswers, torch.AcceleratorError))
    return (FATAL if ends else kind) + pickle.dumps((traceback.format_exc(), _plain(error)))


def _plain(error: BaseException) -> Any:
    """The exception, if it can be pickled; else None."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return None
