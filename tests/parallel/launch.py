"""Scripts on several processes, started as torchrun starts them, without what each start costs.

Under torchrun each process imports torch and transformers, which takes 6 s. Here the processes are forked from two that
have imported them: from two, since processes whose sets of names have another order must agree, too.
`schedule/test_measured.py` starts torchrun itself.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


ROOT = Path(__file__).parents[2]


class Server:
    """A connection to one of two processes of `fork_server.py`, which all processes of a run of tests share."""

    def __init__(self, number):
        # An abstract socket of Linux goes with the last process that has it.
        address = f"\0modular-converter-ranks-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}-{number}"
        self.connection = socket.socket(socket.AF_UNIX)
        while self.connection.connect_ex(address):  # nobody listens, or not yet
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listening:
                listening.bind(address)  # fails if another process has bound it meanwhile
                listening.listen()
                self.process = _listens(listening)
        self.answers = self.connection.makefile("rb", buffering=0)

    def begin(self, launch):
        self.connection.sendall(json.dumps(launch).encode() + b"\n")

    def read(self):
        line = self.answers.readline()
        assert line, "a server of ranks has ended: python -m tests.parallel.fork_server"
        return json.loads(line)


def _listens(listening):
    """A server on a socket. It ends with this process, and those of its connections with theirs."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.parallel.fork_server", str(listening.fileno())]
    handed = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=ROOT, env=environment, pass_fds=[listening.fileno()], **handed)


@functools.cache
def servers():
    """The two servers for this process."""
    return Server(0), Server(1)


@dataclass
class Ended:
    """What the processes of a script wrote, those of the first process first, and the first exit code that is not 0."""

    code: int
    output: str
    errors: str


def launch(processes, script, *arguments, hosts=1, limit_s=600.0):
    """Run a script on processes with the environment of torchrun; all are killed once one fails.

    Args:
        hosts: as many hosts as the processes take themselves to be on, with the same number on each.
    """
    from torch.distributed import TCPStore

    # As torchrun's: the processes meet at a store of the process that starts them.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [_rank(number, processes, hosts, store.port, folder) for number in range(processes)]
        common = {"script": str(script), "arguments": [str(one) for one in arguments]}
        begun = [(server, ranks[number::2]) for number, server in enumerate(servers()) if ranks[number::2]]
        for server, own in begun:
            server.begin({**common, "ranks": own})
        code = _wait([server for server, _ in begun], limit_s)
        texts = [[Path(rank[kind]).read_text() for rank in ranks] for kind in ("output", "errors")]
    return Ended(code, *("".join(one) for one in texts))


def _rank(number, processes, hosts, port, folder):
    here = processes // hosts
    numbers = {"RANK": number, "WORLD_SIZE": processes, "LOCAL_RANK": number % here, "LOCAL_WORLD_SIZE": here}
    numbers |= {"GROUP_RANK": number // here, "MASTER_PORT": port, "TORCHELASTIC_RESTART_COUNT": 0}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment |= {key: str(value) for key, value in numbers.items()}
    environment |= {"MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "none"}
    return {"environment": environment, "output": f"{folder}/{number}.out", "errors": f"{folder}/{number}.err"}


def _wait(servers, limit_s):
    """Wait for the ends of all processes; the first exit code that is not 0, or 0."""
    alive, code, deadline = {one: set(one.read()) for one in servers}, 0, time.monotonic() + limit_s
    with selectors.DefaultSelector() as selector:
        for server in servers:
            selector.register(server.connection, selectors.EVENT_READ, server)
        while any(alive.values()):
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            for key, _ in ready:
                process, ended = key.data.read()
                alive[key.data].remove(process)
                code = code or ended
            if code or not ready:
                code = code or -signal.SIGKILL
                for process in set().union(*alive.values()):
                    with contextlib.suppress(ProcessLookupError):  # it has ended, and its line is not read yet
                        os.kill(process, signal.SIGKILL)
                deadline = time.monotonic() + 60.0
    return code


def lines_of(processes, script, *arguments, hosts=1):
    """The lines of JSON that the first process of a script prints; the script must end well."""
    ended = launch(processes, script, *arguments, hosts=hosts)
    assert ended.code == 0, ended.output[-500:] + ended.errors[-9000:]
    return [json.loads(line) for line in ended.output.splitlines() if line.startswith('{"')]


def line_of(processes, script, *arguments, hosts=1):
    """The first of these lines."""
    return lines_of(processes, script, *arguments, hosts=hosts)[0]
