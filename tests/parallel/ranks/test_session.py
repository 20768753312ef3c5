"""Ranks that fail: the group ends in time, the caller gets the rank's traceback, and nothing is left behind."""

import os
import signal
import threading
import time

import pytest
import torch

from modular_converter.parallel import parallelize
from modular_converter.parallel.engine.base.watched_state import WatchedState
from modular_converter.parallel.errors import PlanError, RankError
from modular_converter.parallel.ranks import processes
from modular_converter.parallel.ranks.processes import FairLock
from tests.parallel.troubled import PLAN, Troubled


X = torch.ones(2, 16)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids, limit_s=20.0):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if not any(map(alive, pids)):
            return True
        time.sleep(0.05)
    return False


def started(limit_s=60.0):
    torch.manual_seed(0)
    model = Troubled().eval()
    with torch.no_grad():
        want = model(X)
    parallelize(model, plan=PLAN, init_method="forkserver", timeout=limit_s)
    pids = [rank.process.pid for rank in model._placement.session.ranks]
    return model, want, pids


def test_turns_are_taken_in_order():
    turns, seen, threads = FairLock(), [], []

    def work(number):
        with turns:
            seen.append(number)

    with turns:
        for number in range(20):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            while len(turns.waiting) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert seen == list(range(20))


def test_an_error_of_all_ranks_is_the_callers_own_and_they_go_on(ranks, monkeypatch):
    torch.manual_seed(0)
    model = Troubled().eval()
    want = model(X)
    parallelize(model, plan=PLAN, session=ranks)
    with pytest.raises(KeyError, match="all ranks") as caught:
        model(X, trouble="together")
    assert "troubled.py" in str(caught.value.__cause__)
    with pytest.raises(Exception, match="a module .Linear. cannot travel"):
        model(X, trouble="module")
    monkeypatch.setattr(processes, "GRACE_S", 0.2)
    with pytest.raises(KeyError, match="one after the other"):
        model(X, trouble="late")
    assert torch.allclose(model(X), want, atol=1e-5)
    assert model(X).requires_grad == want.requires_grad
    model.cpu()
    assert type(model) is Troubled and torch.allclose(model(X), want, atol=1e-6)


def test_who_is_interrupted_while_waiting_gives_its_place_up():
    turns, seen = FairLock(), []

    def interrupt(*_):
        raise KeyboardInterrupt

    def work():
        with turns:
            while len(turns.waiting) < 1 or not seen:
                time.sleep(0.001)
            time.sleep(0.2)

    before = signal.signal(signal.SIGALRM, interrupt)
    holder = threading.Thread(target=work)
    holder.start()
    try:
        while not turns.taken:
            time.sleep(0.001)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            seen.append("waiting")
            with turns:
                pytest.fail("it was another one's turn")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    holder.join()
    assert not turns.waiting and not turns.taken
    with turns:
        pass


def test_a_turn_that_comes_to_who_has_given_up_goes_on_to_the_next():
    turns = FairLock()
    lock = threading.Lock()
    with turns:
        turns.waiting.append(threading.Lock())
        turns.waiting[0].acquire()
        turns._give_up(lock)  # it had been served already
        assert turns.taken and not turns.waiting
    assert not turns.taken


def test_a_thread_does_not_wait_for_itself():
    turns = FairLock()
    with turns:
        with pytest.raises(PlanError, match="running in this thread"), turns:
            pass
        assert turns.taken
    with turns:
        pass


@pytest.mark.slow
def test_a_rank_that_is_stopped_is_told_apart_from_one_that_waits_for_it():
    model, _, pids = started(60.0)
    model(X)  # the first call sends torch's settings, and both ranks must take them before one is stopped in a sum
    model._placement.session.limit_s = 3.0
    os.kill(pids[1], signal.SIGSTOP)
    with pytest.raises(RankError, match="all ranks were ended; rank 1 printed no traceback(.|\n)*rank 0 was here"):
        model(X)
    assert gone(pids)


def test_a_streamer_that_asks_the_model_is_told_and_the_model_goes_on(ranks):
    model = Troubled().eval()
    want = model(X)
    parallelize(model, plan=PLAN, session=ranks)
    with ranks.lock, pytest.raises(PlanError, match="running in this thread"):
        model.memory_allocated()
    assert torch.allclose(model(X), want, atol=1e-5)
    model._placement.end()


def test_a_call_within_a_call_is_refused_while_another_thread_waits_with_a_change(ranks):
    model = Troubled().eval()
    parallelize(model, plan=PLAN, session=ranks)
    model(X)
    found, other = [], threading.Thread(target=lambda: found.append(model(X)))
    with ranks.lock:
        model.shift = model.shift + 1.0
        other.start()
        while not ranks.lock.waiting:
            time.sleep(0.01)
        with pytest.raises(PlanError, match="running in this thread"):
            model(X)
    other.join()
    assert torch.equal(found[0], model(X))
    model._placement.end()


def test_what_calls_store_and_what_others_look_at_meet_in_turn():
    """Two threads at once found "dictionary changed size during iteration" here, within fewer looks than this."""
    model = torch.nn.Sequential(*(Troubled() for _ in range(20)))
    state, failed = WatchedState(model), []

    def store(path):
        try:
            for number in range(200):
                state.accept(path, f"seen{number}", number)
                state.differences()
        except RuntimeError as error:
            failed.append(error)

    threads = [threading.Thread(target=store, args=(str(path),)) for path in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and not state.differences()


def test_calls_of_several_threads_all_get_their_own_answer(ranks):
    model = Troubled().eval()
    wants = [model(X * n) for n in range(12)]
    parallelize(model, plan=PLAN, session=ranks)
    found = [None] * 12

    def work(number):
        found[number] = model(X * number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.allclose(got, want, atol=1e-5) for got, want in zip(found, wants))
    model._placement.end()


@pytest.mark.parametrize(
    "trouble, said",
    [
        ("alone", r"rank 1 failed(.|\n)*ValueError: only here"),
        ("device", r"rank 0 cannot go on; all ranks were ended: CUDA error: device-side assert(.|\n)*troubled.py"),
        ("memory", r"rank 1 failed(.|\n)*no room left"),
        ("dies", "rank 1 died by SIGKILL .*memory runs out"),
        ("crashes", r"rank 1 died by SIGSEGV(.|\n)*troubled.py"),
        pytest.param(
            "hangs",
            r"ranks \[(0, )?1\] did not answer in 4 s; all ranks were ended;(.|\n)*rank 1 was here:(.|\n)*troubled.py",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_rank_in_trouble_ends_the_group(trouble, said):
    model, want, pids = started(60.0)
    assert torch.allclose(model(X), want, atol=1e-5)
    if trouble == "hangs":
        model._placement.session.limit_s = 4.0
    with pytest.raises(RankError, match=said):
        model(X, trouble=trouble)
    assert gone(pids)
    with pytest.raises(RankError, match="load the model again"):
        model(X)
