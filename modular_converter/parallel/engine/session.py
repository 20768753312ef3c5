"""The main process's side of a group of ranks: start them, talk to them in turn, notice what goes wrong, end them.

A rank that dies, hangs or fails alone would leave the others waiting in a collective for ever. So every wait here
watches all ranks, and ends all of them when one cannot go on.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import selectors
import signal
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from modular_converter.parallel.engine.packing import pack, unpack
from modular_converter.parallel.engine.processes import GUARD_TEXT, MISSING_GUARD, Rank, begin, refuse_import_in_child
from modular_converter.parallel.engine.shared_memory import Arena
from modular_converter.parallel.engine.turns import Turns
from modular_converter.parallel.engine.worker import EVENT, FAILURE, UNSENT, Start
from modular_converter.parallel.errors import RankError


START_LIMIT_S = 180.0
# After one rank has failed, the others may be on their way to their answers, or wait for it in a collective.
GRACE_S = 5.0
CPU = torch.device("cpu")


class RemoteError(Exception):
    """An error that all ranks raised alike, with the exception itself, if it could travel, and a rank's traceback."""

    def __init__(self, error: Exception | None, text: str) -> None:
        super().__init__(text)
        self.error = error


@dataclass(eq=False)
class Session:
    """A group of ranks on this machine; models are loaded into it and run in turn.

    Args:
        devices: one name a rank: ``cpu``, or ``cuda:0``, ``cuda:1``, …
        init_method: how processes start: ``spawn``, ``forkserver``, or (CPUs only) ``fork``.
        master_port: where the ranks meet; any free port if None.
        limit_s: seconds that a call may take before the ranks count as hung.
    """

    devices: tuple[str, ...]
    init_method: str = "spawn"
    master_port: int | None = None
    limit_s: float = 600.0
    ranks: list[Rank] = field(default_factory=list)
    ended: str = ""
    calls: int = 0
    times: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.turns = Turns()
        self.down = Arena.create()
        self.selector = selectors.DefaultSelector()
        self.store: Any = None
        self.models: set[int] = set()
        _LIVE.add(self)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    def start(self) -> None:
        """Start the ranks and wait until all have joined.

        Raises:
            RankError: one did not, with its traceback; none is left.
        """
        refuse_import_in_child()
        context: Any = multiprocessing.get_context(self.init_method)
        if self.init_method == "forkserver":
            context.set_forkserver_preload([__name__, "modular_converter.parallel.engine.rank_models", "transformers"])
        self.store = TCPStore("127.0.0.1", self.master_port or 0, is_master=True, wait_for_workers=False)
        forked = self.init_method == "fork"  # a forked child must not use the parent's pool of threads
        threads = 1 if forked else max(1, torch.get_num_threads() // len(self.devices))
        try:
            for number, device in enumerate(self.devices):
                start = Start(
                    number,
                    len(self.devices),
                    device,
                    ("127.0.0.1", self.store.port),
                    threads,
                    self.limit_s,
                )
                rank = begin(context, start, self.down)
                self.ranks.append(rank)
                self.selector.register(rank.pipe, selectors.EVENT_READ, ("pipe", number))
                self.selector.register(rank.process.sentinel, selectors.EVENT_READ, ("end", number))
            self.answers(START_LIMIT_S)
        except RemoteError as error:
            self.end("they did not start")
            raise RankError(f"the ranks did not start: {error}") from error
        except BaseException:
            self.end("they did not start")
            raise

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
            event: gets what the first rank sends on the way, as a kind and a value.
            device: where tensors in the answers shall lie.
            resolve: makes handles of what stays on the ranks.

        Raises:
            RankError: a rank died, hung or failed alone; all have been ended.
            RemoteError: all ranks raised the same; they go on.
        """
        self.send(message)
        return self.answers(limit_s or self.limit_s, event, device, resolve)

    def send(self, message: Any) -> None:
        """The first half of ``ask``; several may be under way, if their tensors do not overlap in the shared area."""
        if self.ended:
            raise RankError(f"the ranks have ended: {self.ended}; load the model again and call parallelize")
        data = pack(message, self.down)
        for rank in self.ranks:
            try:
                rank.pipe.send_bytes(data)
            except OSError:
                continue  # it is dead: the wait for its answer says how

    def answers(
        self,
        limit_s: float,
        event: Callable[[str, Any], None] | None = None,
        device: torch.device = CPU,
        resolve: Callable[[Any], Any] | None = None,
    ) -> list[Any]:
        """The second half of ``ask``, for the oldest message that has not been answered."""
        try:
            raw = self._collect(limit_s, event)
            failed = [number for number, data in enumerate(raw) if data[:1] in (FAILURE, UNSENT)]
            if failed:
                self._raise(raw, failed)
            known = resolve or _unknown
            found = [unpack(data[1:], rank.up, device, known, rank.mail) for data, rank in zip(raw, self.ranks)]
            if device.type == "cuda":
                torch.cuda.current_stream(device).synchronize()  # the next call writes to the mailbox again
            return found
        except RemoteError:
            raise
        except BaseException as error:
            if not self.ended:
                self.end("a call was interrupted" if not isinstance(error, Exception) else str(error), 0.0)
            raise

    def _raise(self, raw: list[bytes], failed: list[int]) -> None:
        """An error of all ranks is the caller's own; if only some have one, the ranks can no longer agree."""
        text, error = pickle.loads(raw[failed[0]][1:])
        if len(failed) < len(raw) and raw[failed[0]][:1] == FAILURE:
            self.end(f"rank {failed[0]} failed alone", 0.0)
            raise RankError(f"rank {failed[0]} failed alone; all ranks were ended:\n{text}")
        raise RemoteError(error, f"on rank {failed[0]}:\n{text}")

    def _collect(self, limit_s: float, event: Callable[[str, Any], None] | None) -> list[bytes]:
        """One message of each rank. Raises ``RankError`` when one dies or the time passes; all are ended then."""
        answers: dict[int, bytes] = {}
        for number, rank in enumerate(self.ranks):
            if rank.arrived:
                answers[number] = rank.arrived.popleft()
        trouble: Exception | None = None
        deadline = time.monotonic() + limit_s
        while len(answers) < len(self.ranks):
            ready = self.selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                self._hung([n for n in range(len(self.ranks)) if n not in answers], answers, limit_s)
            for key, _ in sorted(ready, key=lambda pair: str(pair[0].data[0]), reverse=True):
                number = key.data[1]
                data = self._received(number) if key.data[0] == "pipe" else None
                if data is None:
                    if number not in answers:
                        self._died(number, answers)
                elif data[:1] == EVENT:
                    trouble = trouble or _handled(event, data)
                elif number in answers:
                    self.ranks[number].arrived.append(data)
                else:
                    answers[number] = data
                    if data[:1] == FAILURE:
                        deadline = min(deadline, time.monotonic() + GRACE_S)
        if trouble is not None:
            raise trouble
        return [answers[number] for number in range(len(self.ranks))]

    def _received(self, number: int) -> bytes | None:
        try:
            data: bytes = self.ranks[number].pipe.recv_bytes()
        except (EOFError, OSError):
            return None
        return data

    def _died(self, number: int, answers: dict[int, bytes]) -> None:
        process = self.ranks[number].process
        process.join(2.0)
        words = self._failed_before(answers) or self._last_words(number)
        code = process.exitcode
        if code == MISSING_GUARD:
            self.end("the main module has no guard", 0.0)
            raise RankError(GUARD_TEXT)
        how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
        if code == -signal.SIGKILL:
            how += " (the system does this when memory runs out)"
        self.end(f"rank {number} died {how}", 0.0)
        raise RankError(f"rank {number} died {how}; all ranks were ended{words}")

    def _hung(self, missing: list[int], answers: dict[int, bytes], limit_s: float) -> None:
        failure = self._failed_before(answers)
        for number in missing:
            with contextlib.suppress(OSError, TypeError):
                os.kill(self.ranks[number].process.pid, signal.SIGUSR1)
        time.sleep(0.5)
        words = "".join(self._last_words(number) for number in missing[:1])
        self.end("a rank failed while the others waited for it" if failure else "the time limit passed", 0.0)
        if failure:
            raise RankError(f"all ranks were ended{failure}")
        raise RankError(f"ranks {missing} did not answer in {limit_s:.0f} s; all ranks were ended{words}")

    def _failed_before(self, answers: dict[int, bytes]) -> str:
        for number, data in answers.items():
            if data[:1] == FAILURE:
                return f"; rank {number} failed:\n{pickle.loads(data[1:])[0]}"
        return ""

    def _last_words(self, number: int) -> str:
        """What the rank's interpreter wrote when it crashed or was asked where it is."""
        log = self.ranks[number].log
        text = os.pread(log, 20000, 0).decode("utf-8", "replace").strip()
        return f"; rank {number} was here:\n{text}" if text else ""

    def end(self, reason: str = "they were ended", grace_s: float = 2.0) -> None:
        """End all ranks and give everything back. May be called twice.

        Args:
            grace_s: how long ranks may take to end by themselves, which they do when they are not in a call.
        """
        if not self.ended:
            self.ended = reason
        ranks, self.ranks = self.ranks, []
        for rank in ranks:
            rank.mail.clear()
            self.selector.unregister(rank.pipe)
            rank.pipe.close()
        deadline = time.monotonic() + grace_s
        for rank in ranks:
            rank.process.join(max(0.0, deadline - time.monotonic()))
            if rank.process.exitcode is None:
                rank.process.kill()
        for rank in ranks:
            rank.process.join(10.0)
            self.selector.unregister(rank.process.sentinel)
            rank.lifeline.close()
            rank.up.close()
            os.close(rank.log)
        if ranks:
            self.selector.close()
        self.down.close()
        self.store = None


def _unknown(pid: Any) -> Any:
    raise RankError(f"an answer holds something that stays on the ranks: {pid}")


def _handled(event: Callable[[str, Any], None] | None, data: bytes) -> Exception | None:
    """Hand an event to the caller; an error of the caller's own must wait until all ranks have answered."""
    try:
        if event is not None:
            event(*pickle.loads(data[1:]))
    except Exception as error:
        return error
    return None


_LIVE: weakref.WeakSet[Session] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for session in list(_LIVE):
        session.end("the interpreter ended")
