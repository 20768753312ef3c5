"""Processes of a verification: started once, used for many models, ended for certain.

Each rank builds the small model itself from the same seed, so nothing but names and plan texts travels.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import warnings
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from modular_converter.parallel.errors import PlanError, RankError


START_LIMIT_S = 120.0
TASK_LIMIT_S = 60.0


@dataclass(frozen=True)
class Task:
    """One verification: what to build, the plan as text, through ``ours`` or ``library`` (transformers' loader)."""

    target: Any
    strategy: str
    overrides: tuple[tuple[str, Any], ...]
    plan: str
    route: str = "ours"
    folder: str = ""


class RankPool:
    """Gloo ranks on this machine. Use as a context manager; leaving it ends every process.

    Args:
        size: number of ranks.
        limit_s: seconds a task may take before all ranks are killed.
    """

    def __init__(self, size: int, limit_s: float = TASK_LIMIT_S) -> None:
        self.size = size
        self.limit_s = limit_s
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the ranks and wait until all have joined. Raises ``RankError`` when one does not in time."""
        context = multiprocessing.get_context("spawn")
        store = tempfile.mktemp(prefix="modular-plan-")
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, self.size, store), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)
        self._collect(START_LIMIT_S)

    def stop(self) -> None:
        """End every rank, at once if it does not answer."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join(5.0)
        for pipe in self.pipes:
            pipe.close()
        self.processes, self.pipes = [], []

    def run(self, task: Task) -> list[Any]:
        """The answers of all ranks, in order.

        Raises:
            RankError: a rank died or the time limit passed; all ranks have been ended, the next call starts anew.
        """
        if not self.processes:
            self.start()
        for pipe in self.pipes:
            pipe.send(task)
        return self._collect(self.limit_s)

    def _collect(self, limit_s: float) -> list[Any]:
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + limit_s
        while len(answers) < self.size:
            missing = [i for i in range(self.size) if i not in answers]
            handles: list[Any] = [self.pipes[i] for i in missing]
            ready = wait(handles, timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                self.stop()
                raise RankError(f"ranks {missing} did not answer in {limit_s:.0f} s; all ranks were ended")
            for i in missing:
                if self.pipes[i] in ready:
                    try:
                        answers[i] = self.pipes[i].recv()
                    except EOFError as error:
                        self.stop()
                        raise RankError(f"rank {i} died; all ranks were ended") from error
                    if answers[i] is not None and not getattr(answers[i], "passed", True) and len(answers) < self.size:
                        deadline = min(deadline, time.monotonic() + 3.0)  # the others may wait for it in a collective
                        failed = answers[i]
                        if not wait([self.pipes[j] for j in range(self.size) if j not in answers], timeout=3.0):
                            self.stop()
                            return [failed]
        return [answers[i] for i in range(self.size)]


def _serve(pipe: Connection, rank: int, size: int, store: str) -> None:
    """The life of one rank: join, answer tasks, end with the pipe."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    pipe.send(None)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            os._exit(0)
        pipe.send(_answer(task))


def _answer(task: Task) -> Any:
    from modular_converter.parallel.collectives import ProcessGroup
    from modular_converter.parallel.compare import Verdict, check, conditioned, reference
    from modular_converter.parallel.plan import Plan
    from modular_converter.parallel.tiny.build import build

    group = ProcessGroup()
    try:
        small = build(task.target, dict(task.overrides), task.strategy)
        plan = Plan.parse(task.plan)
        if task.route == "library":
            from modular_converter.parallel.library import check_library

            return check_library(task.folder, small, plan, group.size, reference(small.model, small.inputs))
        model, inputs, whole = conditioned(small.model, small.inputs)
        return check(model, plan, inputs, group, whole)
    except PlanError as error:
        return Verdict(group.size, float("inf"), float("inf"), "", str(error))
    except Exception as error:  # an answer is owed whatever happens
        return Verdict(group.size, float("inf"), float("inf"), "", f"{type(error).__name__}: {str(error)[:200]}")
