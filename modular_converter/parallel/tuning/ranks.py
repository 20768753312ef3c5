"""The processes of a trial: started afresh, watched, and ended together."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modular_converter.parallel.tuning.trial import FAILED, MEMORY, REFUSED, LayoutTrial


_PAUSE_S = 0.05
_GRACE_S = 0.5
_SAID = 300


@dataclass(frozen=True)
class TrialOutcome:
    """What became of a trial.

    Attributes:
        kind: empty if it ran; else ``memory``, ``refused``, ``failed`` or ``hung``.
        why: of a trial that did not run.
        measured: of one that did.
    """

    kind: str
    why: str
    measured: dict[str, float]


HUNG = "hung"


def free_port() -> int:
    """A port that nothing uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run_here(trial: LayoutTrial, processes: int, limit_s: float) -> TrialOutcome:
    """Run a trial on all its processes on this machine."""
    numbers = [{"RANK": rank, "LOCAL_RANK": rank} for rank in range(processes)]
    shared = {"WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "GROUP_RANK": 0}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    return run_processes(trial, [{**one, **shared, **address} for one in numbers], limit_s)


def run_processes(
    trial: LayoutTrial,
    environments: Sequence[dict[str, Any]],
    limit_s: float,
    ended: Callable[[], bool] = lambda: False,
) -> TrialOutcome:
    """Run these processes of a trial, until all have ended well, one fails, or the limit has passed.

    Args:
        ended: whether a process on another machine has failed.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        place = Path(folder, "trial")
        place.write_bytes(pickle.dumps(trial))
        started = []
        for number, one in enumerate(environments):
            output = stack.enter_context(Path(folder, f"{number}.log").open("wb"))
            started.append(_start(place, one, output))
        try:
            kind, codes = _wait(started, limit_s, ended)
        finally:
            for process in started:
                _end(process)
        logs = [Path(folder, f"{number}.log") for number in range(len(started))]
        return _outcome(kind, codes, [_result(place, one["RANK"]) for one in environments], logs)


def _start(place: Path, environment: dict[str, Any], output: Any) -> subprocess.Popen[bytes]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC_", "TORCH_NCCL_"))}
    own |= {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    own |= {"PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}  # classes of the caller are found as here
    return subprocess.Popen(
        [sys.executable, "-m", "modular_converter.parallel.tuning.trial", str(place)],
        env=own | {name: str(value) for name, value in environment.items()},
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _wait(
    started: Sequence[subprocess.Popen[bytes]], limit_s: float, ended: Callable[[], bool]
) -> tuple[str, list[int | None]]:
    """Why the processes are waited for no longer, empty if all ended well; and the exit codes."""
    deadline = time.monotonic() + limit_s
    while True:
        codes = [process.poll() for process in started]
        if all(code == 0 for code in codes):
            return "", codes
        if any(code for code in codes) or ended():
            time.sleep(_GRACE_S)  # others may be about to tell why they fail, too
            return FAILED, [process.poll() for process in started]
        if time.monotonic() > deadline:
            return HUNG, codes
        time.sleep(_PAUSE_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _result(place: Path, rank: int) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(place.with_name(f"{place.name}.{rank}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found


def _outcome(
    kind: str, codes: Sequence[int | None], found: Sequence[dict[str, Any] | None], logs: Any
) -> TrialOutcome:
    """What the processes tell. One that runs out of memory makes others fail, so its reason counts first; else the earliest."""
    if not kind and all(found):
        return TrialOutcome("", "", dict(found[0] or {}))
    failures = sorted((one for one in found if one and "kind" in one), key=lambda one: one["at"])
    silent = [number for number, one in enumerate(found) if codes[number] and one is None]
    for first in (MEMORY, REFUSED, FAILED):
        for one in failures:
            # What a process tells of others that ended without a word is not the reason.
            if one["kind"] == first and not (first == FAILED and silent):
                return TrialOutcome(first, one["why"], {})
    if -signal.SIGKILL in codes:
        return TrialOutcome(MEMORY, "a process was killed, as the system does when memory runs out", {})
    if kind == HUNG:
        return TrialOutcome(HUNG, "did not end in time", {})
    number = silent[0] if silent else 0
    lines = logs[number].read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return TrialOutcome(FAILED, f"process {number} ended with {codes[number]}: {' '.join(lines)[:_SAID]}", {})
