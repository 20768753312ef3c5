"""Ranks' processes: none is left when their start or end fails half-way, and a copy of the main process ends none."""

import math
import multiprocessing
import os
import pickle
import signal
import socket
import threading
import time
from collections import deque
from types import SimpleNamespace

import psutil
import pytest

from modular_converter.parallel.errors import RankError
from modular_converter.parallel.ranks import processes
from modular_converter.parallel.ranks.protocol import ANSWER, EVENT, FAILURE, Arena, Start
from modular_converter.parallel.ranks.session import Session, error_in
from tests.parallel.ranks.test_session import alive, gone
from tests.parallel.ranks.test_session_end import launch, own_words, script


class Context:
    """Stands for multiprocessing; a process is a failure."""

    def Pipe(self, duplex=True):
        return multiprocessing.Pipe(duplex)

    def Process(self, **options):
        pytest.fail("a process was started that nobody could end")


def test_a_rank_is_not_started_when_there_is_no_memory_for_it(monkeypatch):
    down = Arena.create()
    monkeypatch.setattr(Arena, "create", classmethod(lambda kind: (_ for _ in ()).throw(OSError("too many files"))))
    with pytest.raises(OSError, match="too many files"):
        processes.begin(Context(), Start(0, 1, "cpu", ("127.0.0.1", 1), 1, 1.0), down)
    down.close()


def test_the_end_does_not_fail_and_leaves_no_process():
    session = Session(("cpu", "cpu"), init_method="forkserver")
    session.start()
    pids = [rank.process.pid for rank in session.ranks]
    session.ranks[0].pipe.close()
    session.selector.close()
    session.end()
    assert gone(pids, 5.0) and not session.ranks


def test_an_interrupted_end_leaves_no_process(monkeypatch):
    session = Session(("cpu", "cpu"), init_method="forkserver")
    session.start()
    processes = [rank.process for rank in session.ranks]
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)  # as one that is busy: it does not end by itself
    monkeypatch.setattr(
        type(processes[0]), "join", lambda self, timeout=None: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        session.end()
    assert gone([process.pid for process in processes], 5.0)


def test_a_port_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(RankError, match=f"master_port={port} cannot be used"):
            Session(("cpu", "cpu"), master_port=port).start()


FORKED = """
child = os.fork()
    if child == 0:
        try:
            model(torch.ones(2, 16))
        except Exception as error:
            print(error, flush=True)
        with model._placement.session:
            sys.exit(3)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
    time.sleep(1.0)
    print(tuple(model(torch.ones(2, 16)).shape), model._placement.session.ended == "", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_forked_child_leaves_the_ranks_of_its_parent_alone(tmp_path, method):
    process = launch(tmp_path / "main.py", script(FORKED.strip()).replace('"fork"', f'"{method}"'))
    output, errors = process.communicate(timeout=120)
    pids, said, code, shape = output.splitlines()
    assert "this is a forked child" in said and code == "3" and shape == "(2, 16) True", errors
    assert process.returncode == 0 and not own_words(errors) and gone([int(pid) for pid in pids.split()])


@pytest.mark.slow
def test_a_forked_child_does_not_keep_the_ranks_alive(tmp_path):
    then = "child = os.fork()\n    if child == 0:\n        time.sleep(60)\n    print(child, flush=True)\n    time.sleep(60)"
    process = launch(tmp_path / "main.py", script(then).replace('"fork"', '"forkserver"'))
    pids = [int(pid) for pid in process.stdout.readline().split()]
    child = int(process.stdout.readline())
    process.kill()
    assert gone(pids, 10.0) and alive(child)
    os.kill(child, signal.SIGKILL)
    process.communicate()


class Looks:
    """Stands for a selector in which something is ready at the third look."""

    def __init__(self):
        self.timeouts = []

    def select(self, timeout):
        self.timeouts.append(timeout)
        return ["here"] if len(self.timeouts) == 3 else []


@pytest.mark.parametrize("threads, seconds, timeouts", [(1, 600.0, [0, 0, 0]), (2, 600.0, []), (1, 0.0, [])])
def test_messages_are_looked_for_awake_where_no_other_thread_could_run(monkeypatch, threads, seconds, timeouts):
    monkeypatch.setattr(threading, "active_count", lambda: threads)
    looks = Looks()
    assert processes._look(looks, time.monotonic() + seconds) == ["here"] * bool(timeouts)
    assert looks.timeouts == timeouts


def test_a_session_of_cpus_sleeps():
    assert Session(("cpu",)).spin_s == 0.0 < Session(("cuda:0",)).spin_s


class Script:
    """Stands for the selector, the ranks' pipes and the clock: messages that come after so many seconds each."""

    def __init__(self, messages, met=(0, 0)):
        self.messages, self.now, self.arriving = deque(messages), 0.0, None
        process = SimpleNamespace(pid=None, exitcode=-9, join=lambda seconds: None)
        self.ranks = [
            SimpleNamespace(
                arrived=deque(),
                pipe=SimpleNamespace(recv_bytes=self._received),
                log=-1,
                process=process,
                progress=SimpleNamespace(met=count, cells=[count, 0, 0]),
                interrupted=False,
            )
            for count in met
        ]

    def _received(self):
        if self.arriving is None:
            raise EOFError
        return self.arriving

    def select(self, timeout):
        after, rank, arriving = self.messages.popleft() if self.messages else (math.inf, 0, b"")
        self.now += min(after, timeout)
        if after > timeout:
            self.messages.appendleft((after - timeout, rank, arriving))
            return []
        self.arriving = arriving
        return [(SimpleNamespace(data=("pipe", rank)), 1)]

    def get_map(self):
        return {}

    def collect(self, monkeypatch, limit_s, event=None):
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=lambda seconds: None)
        monkeypatch.setattr(processes, "time", clock)
        return processes.collect_answers(self.ranks, self, limit_s, event, lambda number, data: None)


TOKEN = EVENT + pickle.dumps(("put", 7))
ANSWERS = [(0.0, 0, ANSWER + b"one"), (0.0, 1, ANSWER + b"two")]


def test_a_rank_that_streams_is_not_hung(monkeypatch):
    tokens = []
    script = Script([*[(3.0, 0, TOKEN)] * 100, *ANSWERS])
    found, trouble = script.collect(monkeypatch, 4.0, lambda kind, value: tokens.append(value))
    assert found == [ANSWER + b"one", ANSWER + b"two"] and trouble is None
    assert tokens == [7] * 100 and script.now == 300.0


@pytest.mark.parametrize("tokens", [0, 3])
def test_silence_ends_the_wait(monkeypatch, tokens):
    script = Script([*[(3.0, 0, TOKEN)] * tokens, (5.0, 0, TOKEN)])
    with pytest.raises(processes.Lost, match=r"ranks \[0, 1\] did not answer in 4 s"):
        script.collect(monkeypatch, 4.0)
    assert script.now == 3.0 * tokens + 4.0


FAILED = FAILURE + pickle.dumps(("its traceback", None))


@pytest.mark.parametrize("met, limit_s", [((3, 2), processes.GRACE_S), ((2, 2), processes.LATE_S)])
def test_tokens_do_not_lengthen_the_wait_for_ranks_after_a_failure(monkeypatch, met, limit_s):
    """It is short for a rank that waits for the one that has failed, in a collective that this has not entered."""
    script = Script([(1.0, 1, FAILED), *[(0.5, 0, TOKEN)] * 1000], met)
    with pytest.raises(processes.Lost, match="its traceback"):
        script.collect(monkeypatch, 600.0)
    assert limit_s <= script.now <= 1.0 + limit_s


def test_ranks_that_fail_one_after_the_other_all_answer(monkeypatch):
    script = Script([(1.0, 1, FAILED), (50.0, 0, FAILED)], (2, 2))
    assert script.collect(monkeypatch, 600.0) == ([FAILED, FAILED], None)


def test_a_rank_that_dies_after_its_answer_ends_the_wait(monkeypatch):
    script = Script([(0.0, 1, ANSWER), (1.0, 1, None)])
    with pytest.raises(processes.Lost, match="rank 1 died by SIGKILL"):
        script.collect(monkeypatch, 600.0)
    assert script.now == 1.0


def test_an_interrupted_wait_keeps_what_has_arrived(monkeypatch):
    script = Script([(0.0, 1, ANSWER + b"two"), (1.0, 0, TOKEN), (0.0, 0, ANSWER + b"one")])

    def interrupt(kind, value):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        script.collect(monkeypatch, 600.0, interrupt)
    assert not any(rank.interrupted for rank in script.ranks)
    assert script.collect(monkeypatch, 600.0) == ([ANSWER + b"one", ANSWER + b"two"], None)


def test_an_interruption_may_have_cut_a_message(monkeypatch):
    script = Script([(0.0, 1, ANSWER)])

    def cut():
        raise KeyboardInterrupt

    script.ranks[1].pipe.recv_bytes = cut
    with pytest.raises(KeyboardInterrupt):
        script.collect(monkeypatch, 600.0)
    assert [rank.interrupted for rank in script.ranks] == [False, True]


def test_errors_in_different_places_end_the_group():
    """A sum that one rank has begun would be taken for the first of the next call."""
    script = Script([], (2, 3))
    for rank in script.ranks:
        rank.reader = SimpleNamespace(expected={})
    with pytest.raises(processes.Lost, match="in different places"):
        error_in([FAILED, FAILED], script.ranks, ())


def test_no_other_machine_reaches_the_ranks(ranks):
    everyone = [psutil.Process(), *(psutil.Process(rank.process.pid) for rank in ranks.ranks)]
    heard = [found.laddr for one in everyone for found in one.net_connections("tcp") if found.status == "LISTEN"]
    assert ranks.store.port in {address.port for address in heard}
    assert {address.ip for address in heard} == {"127.0.0.1"}


@pytest.mark.parametrize("port", [1 << 20, -1])
def test_a_port_that_does_not_exist_is_refused(port):
    with pytest.raises(RankError, match=f"master_port={port} cannot be used; leave it out"):
        Session(("cpu",), master_port=port).start()


def test_a_signal_that_comes_just_before_a_wait_is_noticed_soon(monkeypatch):
    """It does not interrupt the wait: Python runs its handler when that ends."""
    script = Script([])
    wait = script.select

    def select(timeout):
        wait(timeout)
        if script.now > 5.0:
            raise KeyboardInterrupt
        return []

    monkeypatch.setattr(script, "select", select)
    with pytest.raises(KeyboardInterrupt):
        script.collect(monkeypatch, 600.0)
    assert script.now < 7.0
