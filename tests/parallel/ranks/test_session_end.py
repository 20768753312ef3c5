"""The end of sessions and of the main process, and answers that nobody reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.remote.rank_models import Worker
from modular_converter.parallel.errors import PlanError, RankError
from modular_converter.parallel.ranks.packing import pack
from modular_converter.parallel.ranks.processes import GUARD_TEXT
from modular_converter.parallel.ranks.protocol import ANSWER, EARLY, SECONDS
from modular_converter.parallel.ranks.session import RemoteError, Session
from tests.parallel.ranks.test_session import X, alive, gone, started
from tests.parallel.troubled import PLAN, Troubled


def test_two_sessions_at_once_and_a_block_that_ends_one():
    first, want, pids = started()
    with parallelize(Troubled().eval(), plan=PLAN, init_method="forkserver") as second:
        others = [rank.process.pid for rank in second._placement.session.ranks]
        assert second(X).shape == (2, 16) and torch.allclose(first(X), want, atol=1e-5)
    assert gone(others) and all(map(alive, pids))
    assert not second.up.weight.is_meta
    with pytest.raises(PlanError, match="parallelized already"):
        parallelize(first, plan=PLAN)
    first._placement.end()
    assert gone(pids)


SCRIPT = """
import os, sys, time, torch
from modular_converter.parallel import parallelize
from tests.parallel.troubled import PLAN, Troubled
def main():
    import transformers.modeling_utils  # once, and not in each forked rank
    model = parallelize(Troubled(), plan=PLAN, init_method="fork")
    print(*(rank.process.pid for rank in model._placement.session.ranks), flush=True)
    {then}
if __name__ == "__main__":
    main()
"""


def script(then, guard=True):
    text = SCRIPT.format(then=then)
    if not guard:
        text = text.replace('if __name__ == "__main__":\n    main()', "main()").replace('"fork"', '"spawn"')
        text = text.replace("import transformers.modeling_utils", "pass")
    return textwrap.dedent(text)


def own_words(errors):
    """What was said on standard error, without what torchao says when transformers imports it on a machine without GPUs."""
    return [
        line for line in errors.splitlines() if line.strip() and "/torchao/" not in line and "_pytree.py" not in line
    ]


def launch(path, text):
    path.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_ranks_end_with_the_main_process_in_the_middle_of_a_call(tmp_path, how):
    process = launch(tmp_path / "main.py", script("print('calling', flush=True); model(model.constant[None], 'slow')"))
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert process.stdout.readline().strip() == "calling" and len(pids) == 2
    time.sleep(0.5)
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as a terminal does
    else:
        process.kill()
    process.wait(60)
    errors = process.stderr.read()
    assert gone(pids)
    assert errors.count("KeyboardInterrupt") == (1 if how == signal.SIGINT else 0), errors


@pytest.mark.slow
def test_the_interpreters_end_ends_the_ranks_and_leaves_nothing(tmp_path):
    process = launch(tmp_path / "main.py", script("model(torch.ones(2, 16))"))
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0 and not own_words(errors), errors
    ranks = output.split()
    assert gone([int(pid) for pid in ranks])
    # Torch names its shared files by the process that made them; those of other tests come and go meanwhile.
    left = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    assert not [name for name in left for pid in (str(process.pid), *ranks) if name.startswith(f"torch_{pid}_")]


@pytest.mark.slow
def test_a_missing_guard_is_explained(tmp_path):
    process = launch(tmp_path / "main.py", script("pass", guard=False))
    _, errors = process.communicate(timeout=300)
    assert process.returncode != 0
    assert GUARD_TEXT in errors.splitlines()[-1]


def test_a_session_that_ended_says_so():
    session = Session(("cpu", "cpu"))
    session.end()
    with pytest.raises(RankError, match="have ended"):
        session.ask(("memory",))


def test_a_session_that_ended_is_not_started_again():
    session = Session(("cpu", "cpu"), init_method="forkserver")
    session.end("it was enough")
    with pytest.raises(RankError, match="it was enough; make another Session"):
        session.start()
    session.end()
    assert not session.ranks


def test_ranks_that_have_not_joined_are_ended_at_once():
    session = Session(("cpu", "cpu"))
    session.begin()
    pids = [rank.process.pid for rank in session.ranks]
    session.end("the plan does not fit", grace_s=60.0)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
    with pytest.raises(RankError, match="the plan does not fit"):
        session.start()


def test_a_session_is_started_once(ranks):
    before = list(ranks.ranks)
    ranks.start()
    assert ranks.ranks == before and len(ranks.ask(("memory",))) == 2


def test_answers_that_nobody_took_are_not_those_to_the_next_question(ranks):
    for _ in range(3):
        ranks.send(("rows", 0, 0, 0, 0))
    with pytest.raises(RemoteError) as caught:
        ranks.answers(60.0)
    assert caught.value.about == ("rows", 0)
    found = ranks.ask(("memory",))
    assert [sorted(one) for one in found] == [["allocated", "reserved", "summary"]] * 2 and not ranks.unanswered


def test_an_error_of_the_callers_streamer_is_raised_and_the_ranks_go_on(ranks):
    torch.manual_seed(0)
    model = Streams().eval()
    want = model(X)
    parallelize(model, plan=PLAN, session=ranks)

    class Full:
        def put(self, value):
            raise BufferError("no room")

        def end(self):
            pass

    with pytest.raises(BufferError, match="no room"):
        model(X, streamer=Full())
    assert torch.allclose(model(X), want, atol=1e-5)
    model.cpu()


class Streams(Troubled):
    def forward(self, x, streamer=None):
        if streamer is not None:
            streamer.put(x)
        return super().forward(x)


def test_a_wait_of_months_can_be_asked_for(ranks):
    ranks.send(("memory",))
    assert len(ranks.answers(1e9)) == 2


def test_a_call_of_another_thread_is_told_that_the_ranks_were_ended():
    model, _, pids = started()
    found = []

    def work():
        with pytest.raises(RankError, match="the ranks have ended: it was enough") as caught:
            model(model.constant[None], "slow")
        found.append(caught)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(1.0)
    model._placement.session.end("it was enough", 0.0)
    thread.join(20.0)
    assert found and gone(pids)


def test_an_answer_that_comes_before_its_work_is_done(monkeypatch):
    """As ranks on GPUs send it: what it holds first, and then that it is complete."""

    def early(worker, value, held=None, share=False, check=None):
        if not isinstance(value, tuple):
            return whole(worker, value, held, share, check)
        worker.pipe.send_bytes(EARLY + pack(value, worker.up, held))
        worker.pipe.send_bytes(ANSWER + SECONDS.pack(7.5))

    whole = Worker.answer
    monkeypatch.setattr(Worker, "answer", early)
    with Session(("cpu", "cpu"), init_method="fork") as session:
        model = Troubled().eval()
        want, other = model(X), model(X * 2)
        parallelize(model, plan=PLAN, session=session)
        assert torch.allclose(model(X), want, atol=1e-5)
        assert model._placement.times[0] == 7.5
        assert torch.allclose(model(X * 2), other, atol=1e-5)
