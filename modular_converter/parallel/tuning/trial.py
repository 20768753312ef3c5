"""One trial, in a process for each device: a model with made-up weights is put into a layout and makes steps, timed.

``python -m modular_converter.parallel.tuning.trial FILE`` runs it with the environment of torchrun. Each process writes
what it found, or why it failed, beside the file; it ends when the process that holds its standard input ends.

The owner starts the processes afresh, watches them, and ends them together.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import pickle
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from accelerate import init_empty_weights
from accelerate.utils.memory import should_reduce_batch_size

from modular_converter.parallel.advice.memory import OPTIMIZERS
from modular_converter.parallel.advice.recording import loss_of
from modular_converter.parallel.advice.subject import ModelInQuestion
from modular_converter.parallel.choice.skeleton import Skeleton, assemble_model, dismantle, kept_types
from modular_converter.parallel.costs import CountRequest, inputs_of
from modular_converter.parallel.engine.arguments import BLANK_WEIGHTS, Arguments
from modular_converter.parallel.engine.group.in_process_group import parallelize_here
from modular_converter.parallel.engine.group.same_calls import everywhere
from modular_converter.parallel.engine.stages.in_layout import parallelize_in_stages
from modular_converter.parallel.errors import PlanError, one_line
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.tuning.chosen import ChosenLayout


MEMORY, REFUSED, FAILED = "memory", "refused", "failed"
WARM_UP, LEAST_STEPS = 2, 5
NARROW = 0.03
"""The half of the interval of the mean time, in which it lies with a chance of 95 %, relative to the mean."""


@dataclass(frozen=True)
class TrialModel:
    """A model as it is sent to the processes of a trial: without its weights."""

    skeleton: Skeleton
    buffers: bytes

    def made(self) -> Any:
        """The model, with weights on the meta device, marked so that ``parallelize`` gives it any weights."""
        model, tensors = assemble_model(self.skeleton, torch.device("cpu"))
        for number, value in torch.load(io.BytesIO(self.buffers), weights_only=True).items():
            tensors[number].copy_(value)
        model.__dict__[BLANK_WEIGHTS] = True
        return model


def trial_model(model: Any, dtype: torch.dtype | None) -> TrialModel:
    """A model without its weights. Raises ``ApplyError`` if it cannot be sent to another process."""
    skeleton, tensors = dismantle(model, kept_types(model, dtype))
    held = {
        number: tensor.detach()
        for number, (item, tensor) in enumerate(zip(skeleton.items, tensors))
        if not item.parameter and not tensor.is_meta
    }
    file = io.BytesIO()
    torch.save({number: tensor.to(skeleton.items[number].kept) for number, tensor in held.items()}, file)
    return TrialModel(skeleton, file.getvalue())


def model_of_question(subject: ModelInQuestion) -> TrialModel:
    """The model of a question, with the buffers that its constructor makes."""
    with init_empty_weights(include_buffers=False):
        made = type(subject.model)(subject.model.config)
    return trial_model(made, getattr(torch, subject.request.dtype))


@dataclass(frozen=True)
class LayoutTrial:
    """What a trial runs.

    Attributes:
        compute_type: of products, by its name; empty for that of the weights.
        optimizer: a name in ``OPTIMIZERS``.
        steps: at most; with 1, there is no warm-up and nothing is timed.
        plan: of the caller, if any.
    """

    model: TrialModel
    chosen: ChosenLayout
    device: str
    optimizer: str
    steps: int
    compute_type: str = ""
    sequence_parallel: bool = False
    plan: Any = None


def run_trial(trial: LayoutTrial) -> dict[str, float]:
    """Seconds of a step, half of their interval, steps, tokens a second, and the most bytes of a device."""
    chosen = trial.chosen
    given = chosen.training
    parted = given.sequence_parallel or (trial.sequence_parallel and chosen.layout.tp > 1)
    given = dataclasses.replace(given, compute_type=trial.compute_type or None, sequence_parallel=parted)
    made = trial.model.made()
    request = CountRequest("", {}, None, chosen.rows, chosen.length or None, True, "float32")
    inputs = inputs_of(made, request, torch.device("cpu"))
    torch.manual_seed(0)
    start = parallelize_in_stages if chosen.layout.pp > 1 else parallelize_here
    arguments = Arguments(
        made, plan=trial.plan, device=trial.device, probe=False, layout=chosen.layout, training=given
    )
    model = start(arguments).train()
    place = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if trial.device == "cuda" else torch.device("cpu")
    inputs = {name: one.to(place) if isinstance(one, torch.Tensor) else one for name, one in inputs.items()}
    optimizer = OPTIMIZERS[trial.optimizer](model.parameters())
    step = _step_of(model, optimizer, inputs, chosen)
    seconds = _timed(step, place, trial.steps)
    mean = statistics.fmean(seconds)
    most = torch.cuda.max_memory_reserved(place) if place.type == "cuda" else _resident()
    tokens = chosen.batch * (chosen.length or 1)
    return {
        "seconds": mean,
        "interval": _half_interval(seconds),
        "steps": len(seconds),
        "tokens_a_second": tokens / mean,
        "memory": max(everywhere(float(most), ProcessGroup())),
    }


def _resident() -> int:
    """The most bytes that this process had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _step_of(model: Any, optimizer: Any, inputs: dict[str, Any], chosen: ChosenLayout) -> Callable[[], None]:
    """A function that makes a step, as `examples/train.py` does."""
    staged = chosen.layout.pp > 1
    if "use_cache" in inputs:
        inputs = {**inputs, "use_cache": False}

    def step() -> None:
        for number in range(chosen.accumulate):
            if chosen.accumulate > 1 and hasattr(model, "set_requires_gradient_sync"):
                model.set_requires_gradient_sync(chosen.sync_each_batch or number == chosen.accumulate - 1)
            if staged:
                model.step(**inputs)
            else:
                loss = loss_of(model(**inputs)) / chosen.accumulate
                loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def _timed(step: Callable[[], None], place: torch.device, most: int) -> list[float]:
    """The seconds of each step on the slowest process: until the interval of their mean is narrow."""
    for _ in range(WARM_UP if most > 1 else 0):
        step()
    found: list[float] = []
    while len(found) < most:
        dist.barrier()
        begin = time.perf_counter()
        step()
        if place.type == "cuda":
            torch.cuda.synchronize(place)
        found.append(max(everywhere(time.perf_counter() - begin, ProcessGroup())))
        if len(found) >= LEAST_STEPS and _half_interval(found) <= NARROW * statistics.fmean(found):
            break
    return found


def _half_interval(seconds: list[float]) -> float:
    """Half of the interval in which the mean lies with a chance of 95 %."""
    if len(seconds) < 2:
        return math.inf if not seconds else 0.0
    return 1.96 * statistics.stdev(seconds) / math.sqrt(len(seconds))


def failure_kind(error: BaseException) -> str:
    """Why a trial failed: out of memory, refused with a reason, or anything else."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return MEMORY
    if isinstance(error, PlanError):
        cause = error.__cause__ or error.__context__
        return MEMORY if cause is not None and failure_kind(cause) == MEMORY else REFUSED
    return MEMORY if isinstance(error, Exception) and should_reduce_batch_size(error) else FAILED


def _end_with_owner() -> None:
    """End this process when its standard input is closed, as it is when its owner dies."""

    def wait() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Run the trial of a file; the exit code is 1 if it fails."""
    _end_with_owner()
    place = Path(sys.argv[1])
    result = place.with_name(f"{place.name}.{os.environ['RANK']}.json")
    try:
        found: dict[str, Any] = run_trial(pickle.loads(place.read_bytes()))
    except BaseException as error:
        why = str(error) if isinstance(error, PlanError) else one_line(error, 300)
        found = {"kind": failure_kind(error), "why": why, "at": time.time()}
    written = result.with_suffix(".part")
    written.write_text(json.dumps(found), encoding="utf-8")
    written.replace(result)
    sys.stdout.flush()
    # The other processes may be in a collective, for which an orderly end would wait.
    os._exit(1 if "kind" in found else 0)


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


if __name__ == "__main__":
    main()
