"""The processes of trials, forked from one that has imported torch: started afresh, as users have them, each costs 6 s.

`fork_trials` puts this module in the place of `subprocess` in `tuning/trial.py`. Some tests of `test_tune.py` and
`test_auto_layout.py` start processes afresh.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import PIPE, STDOUT  # noqa: F401

from transformers.models.gpt2 import modeling_gpt2  # noqa: F401
from transformers.models.llama import modeling_llama  # noqa: F401

from modular_converter.parallel.tuning import trial


class Server:
    """A process that forks one for each trial: from here on, before there are threads. It ends with this process."""

    def __init__(self):
        inputs, outputs = os.pipe(), os.pipe()
        if not os.fork():
            os.close(inputs[1])
            os.close(outputs[0])
            serve(inputs[0], outputs[1])
        os.close(inputs[0])
        os.close(outputs[1])
        self.launches, self.answers = open(inputs[1], "w", buffering=1), open(outputs[0])  # noqa: SIM115

    def started(self, launch):
        """The number of a process that runs it."""
        self.launches.write(json.dumps(launch) + "\n")
        return int(self.answers.readline())

    def close(self):
        self.launches.close()
        self.answers.close()


def serve(launches, answers):
    """A process for each launch, and one that waits for it and writes how it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in open(launches):  # noqa: SIM115
        launch = json.loads(line)
        if os.fork():
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if not (process := os.fork()):
            os.close(launches)
            os.close(answers)
            with contextlib.suppress(Exception):
                become_trial(**launch)
            os._exit(1)
        os.write(answers, f"{process}\n".encode())
        _, status = os.waitpid(process, 0)
        ended = Path(launch["ended"])
        with contextlib.suppress(FileNotFoundError):  # nobody waits any more
            ended.with_suffix(".part").write_text(str(os.waitstatus_to_exitcode(status)))
            ended.with_suffix(".part").replace(ended)
        break
    os._exit(0)


def become_trial(place, environment, given, output, ended):
    os.setsid()
    for descriptor, path in enumerate((given, output, output)):
        opened = os.open(path, os.O_WRONLY | os.O_APPEND if descriptor else os.O_RDONLY)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", 1), open(2, "w", 1)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [trial.__file__, place]
    trial.main()


class Popen:
    """What `tuning/trial.py` uses of a `subprocess.Popen`."""

    server: Server

    def __init__(self, command, env, stdout, **more):
        self.ended, given = Path(f"{stdout.name}.ended"), f"{stdout.name}.given"
        os.mkfifo(given)
        launch = {"place": command[-1], "environment": env, "output": stdout.name}
        self.pid = self.server.started({**launch, "given": given, "ended": str(self.ended)})
        self.stdin = open(given, "wb", buffering=0)  # noqa: SIM115

    def poll(self):
        return int(self.ended.read_text()) if self.ended.exists() else None

    def wait(self):
        while self.poll() is None:
            time.sleep(0.01)


@contextlib.contextmanager
def fork_trials():
    """Processes of trials are forked from this one, as it is now."""
    Popen.server, trial.subprocess = Server(), sys.modules[__name__]
    try:
        yield
    finally:
        import subprocess

        trial.subprocess = subprocess
        Popen.server.close()
