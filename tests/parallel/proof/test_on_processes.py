"""Ranks that fail, die, hang or are left alone: a clear error in time, and no process stays behind."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


pytest.importorskip("transformers")
from modular_converter.parallel.errors import PlanError, RankError  # noqa: E402
from modular_converter.parallel.proof.on_ranks import RankPool, Task, verdict_on  # noqa: E402
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402
from modular_converter.parallel.tiny.target import Target  # noqa: E402


LLAMA = "transformers.models.llama"


def task(code: str, name: str) -> Task:
    """A task whose model is in a module of the given code; importing it is the first thing that a rank does."""
    texts = ((name, f"/nowhere/{name}.py", code),)
    return Task(Target(name, f"{name}.Model", f"{name}.Config", "", texts), "sizes", (), "plan x\n")


def good(plan: str = "plan x\nrule layers.*.mlp.up_proj colwise\nrule layers.*.mlp.gate_proj colwise\n") -> Task:
    target = Target("llama", f"{LLAMA}.modeling_llama.LlamaModel", f"{LLAMA}.configuration_llama.LlamaConfig")
    return Task(target, "sizes", (), plan + "rule layers.*.mlp.down_proj rowwise\n")


def gone(pid: int) -> bool:
    """Whether a process has ended, or only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def processes_of(pool: RankPool) -> list[int]:
    """The ranks of a pool, in order."""
    assert pool.session is not None
    return [rank.process.pid for rank in pool.session.ranks]


def all_gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + 30.0
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return all(map(gone, pids))


@pytest.fixture(scope="module")
def pool():
    with RankPool(2, limit_s=60.0) as ranks:
        yield ranks


def test_what_a_models_code_raises_is_a_refusal(pool):
    pool.run(good())
    pids = processes_of(pool)
    for verdict in pool.run(task("raise ValueError('no such thing')", "raising_model")):
        assert not verdict.passed
        assert "no such thing" in verdict.reason
    assert processes_of(pool) == pids  # all have refused it, and go on
    assert all(verdict.passed for verdict in pool.run(good()))


def test_a_rank_that_fails_alone_does_not_leave_the_other_in_a_collective(pool):
    """Rank 1 refuses; rank 0 would wait for it in the first all-reduce."""
    alone = good().target
    text = (
        "import os\nfrom transformers.models.llama.modeling_llama import LlamaModel as Model\n"
        "from transformers.models.llama.configuration_llama import LlamaConfig as Config\n"
        "if os.environ['RANK'] == '1':\n    raise ValueError('only here')\n"
    )
    one = task(text, "lonely_model")
    verdicts = pool.run(Task(one.target, "sizes", (), good().plan))
    assert any("only here" in verdict.reason for verdict in verdicts)
    assert all(verdict.passed for verdict in pool.run(Task(alone, "sizes", (), good().plan)))


def test_a_rank_that_dies_is_named_and_all_are_ended(pool):
    pool.run(good())
    pids = processes_of(pool)
    with pytest.raises(RankError, match=r"rank 1 died with exit code 3; all ranks were ended"):
        pool.run(
            task("import os\nif os.environ['RANK'] == '1':\n    os._exit(3)\nimport time\ntime.sleep(60)", "dying")
        )
    assert pool.session.ended and all_gone(pids)


def test_a_rank_that_was_killed_between_tasks_is_an_error(pool):
    pool.run(good())
    pids = processes_of(pool)
    os.kill(pids[0], signal.SIGKILL)
    assert all_gone(pids[:1])
    with pytest.raises(RankError, match="died"):
        pool.run(good())
    assert all_gone(pids)


def test_ranks_that_hang_are_ended_in_time(pool):
    pool.run(good())
    pids = processes_of(pool)
    pool.limit_s = 2.0
    try:
        with pytest.raises(RankError, match=r"ranks \[0, 1\] did not answer in 2 s; all ranks were ended"):
            pool.run(task("import time\ntime.sleep(60)", "hanging"))
    finally:
        pool.limit_s = 60.0
    assert all_gone(pids)


def test_an_interrupted_task_leaves_no_answer_for_the_next(pool):
    """A time limit on the whole model strikes in the middle of a task."""
    from modular_converter.parallel.tables.coverage import limited

    pool.run(good())
    with pytest.raises(PlanError, match="took more than 1 s"), limited(1):
        pool.run(task("import time\ntime.sleep(3)\nraise ValueError('late')", "slow"))
    assert pool.session.ended


@pytest.mark.slow
def test_no_rank_outlives_a_main_process_that_is_killed():
    code = (
        "import sys, pathlib\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_on_processes as t\n"
        "if __name__ == '__main__':\n"
        "    pool = t.RankPool(2)\n"
        "    pool.start()\n"
        "    print(*t.processes_of(pool), flush=True)\n"
        "    pool.run(t.task('while True:\\n    pass', 'busy'))\n"
    )
    script = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert script.stdout is not None
    pids = [int(pid) for pid in script.stdout.readline().split()]
    time.sleep(0.5)  # the ranks are in their loop, or about to be
    script.kill()
    script.wait()
    script.stdout.close()
    assert len(pids) == 2
    assert all_gone(pids)


class _Alone:
    """One rank of one."""

    rank, size = 0, 1

    def all_reduce(self, tensor):
        return tensor.clone()

    def all_gather(self, tensor):
        return [tensor]


@pytest.fixture
def alone():
    """What a rank answers, without a process for it."""
    task = Task(target_of("gpt2"), "", (("n_layer", 1),), "plan x\n")
    return lambda **changes: verdict_on(dataclasses.replace(task, **changes), _Alone())


def test_a_rank_answers_with_both_draws(alone):
    strategy = build(target_of("gpt2")).strategy
    verdict = alone(strategy=strategy, plan="plan x\nrule h.*.mlp.c_fc colwise dim=1\n")
    assert verdict.passed and verdict.ranks == 1
    assert (verdict.evidence.draws, verdict.evidence.places) == (2, ("gloo processes",))
    assert "n_layer=1" in verdict.evidence.sizes


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"plan": "rule a colwise\n"}, "a plan begins with a line `plan MODEL`"),
        ({"plan": "plan x\nrule gone colwise\n"}, "gone: matches no module and no parameter of the model"),
        ({"overrides": 5}, "TypeError: 'int' object is not iterable"),
    ],
)
def test_an_answer_is_owed_whatever_happens(alone, changes, reason):
    verdict = alone(**{"strategy": build(target_of("gpt2")).strategy} | changes)
    assert not verdict.passed and verdict.ranks == 1 and verdict.reason == reason
