"""The main process's side of a group of ranks: start them, send messages in turn, detect failures, end them.

If a rank dies, hangs or fails alone, the others wait in a collective for ever. So every wait here watches all ranks, and
ends all of them if one cannot go on.

All sessions of a process end with the interpreter, and a forked child forgets them.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import selectors
import socket
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError, RankError, one_line
from modular_converter.parallel.ranks.packing import pack, unpack
from modular_converter.parallel.ranks.processes import (
    LATE_S,
    FairLock,
    Lost,
    Rank,
    begin,
    collect_answers,
    disown,
    finish,
    refuse_daemon,
    refuse_import_in_child,
)
from modular_converter.parallel.ranks.protocol import (
    ANSWER,
    FAILURE,
    FATAL,
    FORGET,
    HEAD,
    LOOPBACK,
    SECONDS,
    UNSENT,
    WORKER,
    Arena,
    Start,
    stop_all,
)
from modular_converter.parallel.torch_private import TCPStore


class RemoteError(Exception):
    """An error that all ranks raised alike, with a rank's traceback.

    Attributes:
        error: the exception itself, if it could be pickled.
        about: kind of the message that raised the error, and the number of its model if there is one.
    """

    def __init__(self, error: Exception | None, text: str, about: tuple[Any, ...] = ()) -> None:
        super().__init__(text)
        self.error, self.about = error, about


def error_in(raw: list[bytes], ranks: list[Rank], about: tuple[Any, ...]) -> RemoteError | None:
    """The error that all ranks raised, which is the caller's own; None if there is no error.

    Raises ``Lost`` if only some ranks raised an error, or in different places, so that they can no longer agree.
    """
    failed = [number for number, data in enumerate(raw) if data[:1] in (FAILURE, FATAL, UNSENT)]
    if not failed:
        return None
    for rank in ranks:
        rank.reader.expected.clear()
    first = min(failed, key=lambda number: (raw[number][:1] != FATAL, raw[number][:1] != FAILURE, number))
    text, error = pickle.loads(raw[first][1:])
    if raw[first][:1] == FATAL:
        reason = str(error or "").partition("\n")[0] or "an error of the device"
        raise Lost(reason, f"rank {first} cannot go on; all ranks were ended: {reason}\n{text}", error)
    if len(failed) < len(raw) and raw[first][:1] == FAILURE:
        alone = f"rank {first} failed alone"
        raise Lost(alone, f"{alone}; all ranks were ended:\n{text}", error)
    # A collective that a rank has begun would match one of the next call.
    if len({rank.progress.met for rank in ranks}) > 1:
        apart = "the ranks failed in different places"
        raise Lost(apart, f"{apart}; rank {first}:\n{text}", error)
    return RemoteError(error, f"on rank {first}:\n{text}", about)


LIVE: weakref.WeakSet[Any] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for session in list(LIVE):
        session.end("the interpreter ended")


def _forget_all() -> None:
    """Forget the parent's ranks, in a forked child. It shares the selector's descriptor, which must stay unchanged."""
    for session in list(LIVE):
        for rank in session.ranks:
            disown(rank)
        session.ranks, session.unneeded, session.lock = [], [], FairLock()
        session.ended = session.ended or "this is a forked child of the process that started them"
    LIVE.clear()


os.register_at_fork(after_in_child=_forget_all)


def local_store(port: int | None) -> TCPStore:
    """A store that only this machine can reach. torch's own listens on all interfaces, without a password.

    Raises ``RankError`` if the port is not free or not valid.
    """
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port or 0))
        listening.listen(128)
        listening.setblocking(False)
        found, descriptor = listening.getsockname()[1], listening.detach()  # the store closes it
        return TCPStore(LOOPBACK, found, is_master=True, wait_for_workers=False, master_listen_fd=descriptor)
    except (OSError, OverflowError, RuntimeError) as error:
        listening.close()
        raise RankError(f"master_port={port} cannot be used; leave it out: {error}") from error


def fork_server(*modules: str) -> Any:
    """The context of ``multiprocessing`` for ranks that are forked from one process, which has imported what they need.

    Args:
        modules: what that process imports beside transformers, if it does not run yet.
    """
    context = multiprocessing.get_context("forkserver")
    # With torchao, transformers asks for GPUs while it is imported, and no child of a process that has asked can use one.
    library = "transformers" if torch.cuda.is_available() else "transformers.modeling_utils"
    context.set_forkserver_preload([library, *modules])
    return context


START_LIMIT_S = 180.0
# Seconds to poll: on a virtual machine a sleeping process wakes 0.2 ms late, and is slow then. torch polls a GPU, too.
SPIN_S = 0.1
CPU = torch.device("cpu")
# The entry among the messages without an answer until all ranks have joined.
_START = ("start",)


@dataclass(eq=False)
class Session:
    """A group of ranks on this machine; models are loaded into it and run in turn.

    Args:
        devices: one name a rank: ``cpu``, or ``cuda:0``, ``cuda:1``, …
        init_method: how processes start: ``spawn``, ``forkserver``, or (CPUs only) ``fork``.
        master_port: of the ranks' store; any free port if None.
        limit_s: seconds without a message, such as a token for a streamer, after which the ranks count as hung.
        worker: the class that answers messages on a rank, as ``module:Class``.
        leave_s: seconds that an interrupted call may take until its next token, at which the ranks leave it.
        late_s: seconds after a rank's failure in which the others may answer.

    Attributes:
        times: the seconds that each rank took for its last answer.
    """

    devices: tuple[str, ...]
    init_method: str = "spawn"
    master_port: int | None = None
    limit_s: float = 600.0
    worker: str = WORKER
    leave_s: float = 15.0
    late_s: float = LATE_S
    ranks: list[Rank] = field(default_factory=list)
    ended: str = ""

    def __post_init__(self) -> None:
        self.lock = FairLock(self._tidy)
        self.down = Arena.create()
        self.selector = selectors.DefaultSelector()
        self.store: Any = None
        self.spin_s = 0.0 if self.devices[0] == "cpu" else SPIN_S
        self.times: list[float] = []
        self.switches: Any = None  # of torch, on the ranks; None if they have their own
        self.unanswered: deque[tuple[Any, ...]] = deque()  # kind and model of each message without an answer
        # (Model, objects) that the ranks can drop; None stands for the model itself.
        self.unneeded: list[tuple[int, range | None]] = []
        LIVE.add(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def begin(self) -> None:
        """Start the ranks' processes if they are not started yet, and do not wait until they have joined each other.

        Raises ``RankError`` if the session has ended, or this process may not start others.
        """
        refuse_import_in_child()
        refuse_daemon()
        with self.lock:
            self.refuse_ended()
            if self.ranks:
                return
            try:
                self._begin_all()
                self.unanswered.append(_START)
            except BaseException:
                self.end("they did not start")
                raise

    def start(self) -> None:
        """Start the ranks if they are not started yet, and wait until all have joined.

        Raises ``RankError`` as ``begin`` does, and with a traceback if a rank did not join; all ranks are ended then.
        """
        self.begin()
        with self.lock:
            self.refuse_ended()
            if _START not in self.unanswered:
                return
            try:
                self.answers(START_LIMIT_S)
            except RemoteError as error:
                self.end("they did not start")
                raise RankError(f"the ranks did not start: {error}") from error

    def refuse_ended(self) -> None:
        """Raise ``RankError`` if these ranks can no longer take a model."""
        if self.ended:
            raise RankError(f"the session's ranks have ended: {self.ended}; make another Session")

    def _begin_all(self) -> None:
        served = self.init_method == "forkserver"
        modules = (__name__, self.worker.partition(":")[0])
        context: Any = fork_server(*modules) if served else multiprocessing.get_context(self.init_method)
        self.store = local_store(self.master_port)
        forked = self.init_method == "fork"  # a forked child must not use the parent's pool of threads
        size = len(self.devices)
        threads = 1 if forked else max(1, torch.get_num_threads() // size)
        for number, device in enumerate(self.devices):
            start = Start(number, size, device, (LOOPBACK, self.store.port), threads, self.limit_s, self.worker)
            rank = begin(context, start, self.down)
            self.ranks.append(rank)
            self.selector.register(rank.pipe, selectors.EVENT_READ, ("pipe", number))
            self.selector.register(rank.process.sentinel, selectors.EVENT_READ, ("end", number))

    def ask(
        self,
        message: Any,
        limit_s: float | None = None,
        event: Callable[[str, Any], None] | None = None,
        device: torch.device = CPU,
        resolve: Callable[[Any], Any] | None = None,
    ) -> list[Any]:
        """Send one message to all ranks and wait for all answers.

        Args:
            event: called with the kind and value of each event that the first rank sends.
            device: of tensors in the answers.
            resolve: makes handles of objects that stay on the ranks.

        Raises:
            RankError: a rank died, hung or failed alone; all ranks have been ended.
            RemoteError: all ranks raised the same error; they go on.
        """
        self._send_unneeded()
        self._discard_answers(self.limit_s)
        self.send(message)
        return self.answers(limit_s or self.limit_s, event, device, resolve)

    def _discard_answers(self, limit_s: float) -> None:
        """Discard unread answers, of calls that were running when something failed."""
        while self.unanswered and not self.ended:
            with contextlib.suppress(RemoteError):
                self.answers(limit_s)

    def settle(self) -> None:
        """Wait until the ranks are idle, and release the shared memory."""
        with contextlib.suppress(RankError), self.lock:
            self._discard_answers(self.limit_s)
            self.down.release()

    def forget(self, model: int, numbers: range | None = None) -> None:
        """Let the ranks drop a model, or objects that it keeps: now, or when the lock is free.

        It never waits, and can be called at any moment, such as by a finalizer in the middle of a call.
        """
        self.unneeded.append((model, numbers))
        self._tidy()

    def remember(self, model: int, number: int) -> None:
        """Keep an object after all, if the ranks have not yet been told to drop it."""
        for entry in [one for one in self.unneeded if one[0] == model and one[1] == range(number, number + 1)]:
            self.unneeded.remove(entry)

    def _tidy(self) -> None:
        if self.unneeded and self.ranks and not self.ended and self.lock.take_if_free():
            try:
                with contextlib.suppress(RankError):  # another thread ends the ranks
                    self._send_unneeded()
            finally:
                self.lock.leave()

    def _send_unneeded(self) -> None:
        batch = self.unneeded[:]  # finalizers may add to it meanwhile
        if batch and not self.ended:
            del self.unneeded[: len(batch)]
            self.send((FORGET, batch))

    def send(self, message: Any) -> None:
        """The first half of ``ask``. Several messages may be sent, if their tensors do not overlap in the shared area.

        ``FORGET`` gets no answer: after most calls a cache is dropped, and the next call would wait for two messages.
        """
        if self.ended:
            raise self._gone()
        try:
            data = pack(message, self.down)
        except (
            pickle.PicklingError,
            AttributeError,
            TypeError,
        ) as error:  # whatever pickle raises for a local function
            raise PlanError(
                f"{one_line(error)}: what goes to the ranks must be importable there; define functions and classes at the top "
                "of a module"
            ) from error
        if message[0] != FORGET:
            if not self.unanswered:
                for rank in self.ranks:
                    rank.progress.begin()
            self.unanswered.append(message[:2])
        try:
            for rank in self.ranks:
                with contextlib.suppress(OSError):  # it is dead: the wait for its answer reports this
                    rank.pipe.send_bytes(data)
        except BaseException:
            self.end("a call was interrupted", 0.0)
            raise

    def _gone(self) -> RankError:
        return RankError(f"the ranks have ended: {self.ended}; load the model again and call parallelize")

    def answers(
        self,
        limit_s: float,
        event: Callable[[str, Any], None] | None = None,
        device: torch.device = CPU,
        resolve: Callable[[Any], Any] | None = None,
    ) -> list[Any]:
        """The second half of ``ask``, for the oldest message without an answer."""
        found: dict[int, Any] = {}

        def read(number: int, data: bytes) -> None:
            rank = self.ranks[number]
            found[number] = unpack(data, rank.up, device, resolve or _unknown, rank.reader)

        try:
            raw, trouble = collect_answers(self.ranks, self.selector, limit_s, event, read, self.spin_s, self.late_s)
            error = error_in(raw, self.ranks, self.unanswered.popleft())
            if error is None:
                self.times = [SECONDS.unpack(data[len(ANSWER) : HEAD])[0] for data in raw]
                for number, rank in enumerate(self.ranks):
                    if number not in found:
                        read(number, raw[number][HEAD:])
                    rank.reader.read()
                if device.type == "cuda":
                    torch.cuda.current_stream(device).synchronize()  # the next call writes to the buffer again
        except Exception as failure:
            if self.ended:  # by another thread
                raise self._gone() from failure
            self.end(failure.reason if isinstance(failure, Lost) else str(failure), 0.0)
            if isinstance(failure, Lost):
                raise RankError(str(failure)) from failure.error
            raise
        except BaseException:
            self._leave()
            raise
        if trouble is not None or error is not None:
            raise trouble or error  # type: ignore[misc]
        return [found[number] for number in range(len(raw))]

    def _leave(self) -> None:
        """After an interruption: let the ranks leave the call at the next token; end them if they do not."""
        left = False
        try:
            if _START not in self.unanswered and not any(rank.interrupted for rank in self.ranks):
                stop_all([rank.progress for rank in self.ranks])
                with contextlib.suppress(RankError):
                    self._discard_answers(self.leave_s)
                for rank in self.ranks:
                    rank.reader.expected.clear()
                left = True
        finally:
            if not left:
                self.end("a call was interrupted", 0.0)

    def end(self, reason: str = "they were ended", grace_s: float = 2.0) -> None:
        """End all ranks and release all resources. May be called twice.

        Args:
            grace_s: seconds for idle ranks to end by themselves; all others are killed.
        """
        if not self.ended:
            self.ended = reason
        if _START in self.unanswered:
            grace_s = 0.0
        ranks, self.ranks = self.ranks, []
        try:
            finish(ranks, grace_s)
        finally:
            self.selector.close()
            self.down.close()
            self.store = None


def _unknown(pid: Any) -> Any:
    raise RankError(f"an answer contains an object that stays on the ranks: {pid}")
