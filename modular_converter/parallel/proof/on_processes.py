"""The processes of a verification: started once, used for many models, and ended in any case.

Each rank builds the small model itself from the same seed, so only names and plan texts are sent. Ranks are forked from a
process that has imported what each needs: the seconds of this are spent once.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import threading
import time
import warnings
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from modular_converter.parallel.errors import PlanError, RankError


def fork_server(*modules: str) -> Any:
    """The context of ``multiprocessing`` for ranks that are forked from one process.

    Args:
        modules: what that process imports beside transformers, if it does not run yet.
    """
    import torch

    context = multiprocessing.get_context("forkserver")
    # With torchao, transformers asks for GPUs while it is imported, and no child of a process that has asked can use one.
    library = "transformers" if torch.cuda.is_available() else "transformers.modeling_utils"
    context.set_forkserver_preload([library, *modules])
    return context


START_LIMIT_S = 120.0
TASK_LIMIT_S = 60.0
_MODULES = (
    "modular_converter.parallel.proof.compare",
    "modular_converter.parallel.proof.precision",
    "modular_converter.parallel.shard.shares",
    "modular_converter.parallel.tiny.build",
)
"""Each rank needs them."""


@dataclass(frozen=True)
class Task:
    """One verification: the model to build, the plan as text, and how to apply it.

    ``route`` is ``ours``, ``library`` (transformers' loader), ``committed`` (the same with the model's own plan), or
    ``torch`` (``parallelize_module``).
    """

    target: Any
    strategy: str
    overrides: tuple[tuple[str, Any], ...]
    plan: str
    route: str = "ours"
    folder: str = ""


class RankPool:
    """Gloo ranks on this machine; a context manager that ends all processes.

    Args:
        size: the number of ranks.
        limit_s: seconds for a task, after which all ranks are killed.
    """

    def __init__(self, size: int, limit_s: float = TASK_LIMIT_S) -> None:
        self.size = size
        self.limit_s = limit_s
        self.processes: list[Any] = []
        self.pipes: list[Connection] = []
        self.folder = ""

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the ranks and wait until all have joined. Raises ``RankError`` if one does not join in time."""
        context = fork_server(*_MODULES)
        self.folder = tempfile.mkdtemp(prefix="modular-plan-")
        store = os.path.join(self.folder, "store")
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank, self.size, store), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self.pipes.append(ours)
        self._collect(START_LIMIT_S)

    def stop(self) -> None:
        """Kill all ranks, and remove their folder."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join(5.0)
        for pipe in self.pipes:
            pipe.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.processes, self.pipes, self.folder = [], [], ""

    def run(self, task: Task) -> list[Any]:
        """The answers of all ranks, in order.

        Raises ``RankError`` if a rank died or the time limit passed; the next call starts new ranks.
        """
        try:
            if not self.processes:
                self.start()
            for pipe in self.pipes:
                pipe.send(task)
            return self._collect(self.limit_s)
        except BaseException as error:  # the next task must not read an answer to this one
            self.stop()
            if isinstance(error, (BrokenPipeError, ConnectionResetError)):
                raise RankError("a rank died before it got its task; all ranks were ended") from error
            raise

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
                    except (EOFError, ConnectionResetError) as error:
                        self.processes[i].join(1.0)
                        code = self.processes[i].exitcode
                        self.stop()
                        raise RankError(f"rank {i} died (exit code {code}); all ranks were ended") from error
                    if answers[i] is not None and not getattr(answers[i], "passed", True) and len(answers) < self.size:
                        deadline = min(deadline, time.monotonic() + 3.0)  # the others may wait for it in a collective
                        failed = answers[i]
                        if not wait([self.pipes[j] for j in range(self.size) if j not in answers], timeout=3.0):
                            self.stop()
                            return [failed]
        return [answers[i] for i in range(self.size)]


def _serve(pipe: Connection, rank: int, size: int, store: str) -> None:
    """Run one rank: join, answer tasks, and end with the pipe, or at any moment with the main process."""
    threading.Thread(target=_end_with_main, args=(os.path.dirname(store),), daemon=True).start()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    warnings.simplefilter("ignore")
    import torch
    import torch.distributed as dist
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    pipe.send(None)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            shutil.rmtree(os.path.dirname(store), ignore_errors=True)
            os._exit(0)
        pipe.send(_answer(task))


def _end_with_main(folder: str) -> None:
    """End this process when the main process has ended, even in a collective or a model's loop, and remove its folder."""
    main = multiprocessing.parent_process()
    assert main is not None
    main.join()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _answer(task: Task) -> Any:
    from modular_converter.parallel.plans.plan import Plan
    from modular_converter.parallel.proof.compare import check_on_rank
    from modular_converter.parallel.proof.judge import both_draws, refused
    from modular_converter.parallel.proof.precision import without_unstable
    from modular_converter.parallel.proof.subject import situation_of, subject_of
    from modular_converter.parallel.shard.collectives import ProcessGroup
    from modular_converter.parallel.shard.shares import plan_for_ranks
    from modular_converter.parallel.tiny.build import build

    group = ProcessGroup()
    try:
        small = build(task.target, dict(task.overrides), task.strategy)
        plan = Plan.parse(task.plan)
        if task.route != "ours":
            return _through_loader(task, small, plan, group.size)
        plan = plan_for_ranks(plan, small.model, small.inputs, group.size)
        subject = subject_of(small.model, small.inputs)
        scope = replace(subject.evidence, places=("gloo processes",))
        verdict = check_on_rank(subject.model, plan, subject.inputs, group, subject.whole, scope)
        if not verdict.passed or subject.again is None:
            return verdict
        other = without_unstable(subject.again)
        second = check_on_rank(other.model, plan, other.inputs, group, other.whole, other.evidence)
        return both_draws(verdict, second, situation_of(other))
    except PlanError as error:
        return refused(group.size, "", str(error))
    except Exception as error:  # each task must get an answer
        return refused(group.size, "", f"{type(error).__name__}: {str(error)[:200]}")


def _through_loader(task: Task, small: Any, plan: Any, size: int) -> Any:
    from modular_converter.parallel.proof.compare import reference
    from modular_converter.parallel.proof.library import check_committed, check_library, check_torch, end_groups

    whole = reference(small.model, small.inputs)
    try:
        if task.route == "committed":
            return check_committed(task.folder, small, size, whole)
        if task.route == "torch":
            return check_torch(small, plan, size, whole)
        return check_library(task.folder, small, plan, size, whole)
    finally:
        end_groups()
