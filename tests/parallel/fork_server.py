"""A process that has imported what training scripts import, and forks a process for each rank of a script.

It listens on a socket, whose descriptor is its argument, and forks a process for each connection. Each line that comes is
a launch: the script, its arguments, and for each rank here its environment and the two files of its output. The answer is
a line of the numbers of the processes, and one line for each process that ends: its number and its exit code. The process
ends with its connection, and that which listens with its input.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import warnings

import torch
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel
import transformers.modeling_utils
import transformers.models.gpt2.modeling_gpt2
import transformers.models.llama.modeling_llama
import transformers.trainer  # noqa: F401

import modular_converter.parallel.engine.group.in_process_group
import modular_converter.parallel.engine.stages.pipeline
import modular_converter.parallel.tiny.build  # noqa: F401


def become_rank(script, arguments, environment, output, errors):
    """Let this process look like one that torchrun has just started."""
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate((os.devnull, output, errors)):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    faulthandler.enable()  # a process that crashes tells where
    torch.set_num_threads(1)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))


def connection_of(listening):
    """The connection that the process which returns serves; None in the process that listens, once its input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the processes of connections
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        connection, _ = listening.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            return connection
        connection.close()
    return None


def serve(connection):
    """Fork for each launch, and wait for all its processes. A forked process returns with its script."""
    lines, answers = connection.makefile("r"), connection.makefile("w")
    for line in lines:
        launch = json.loads(line)
        started = []
        for rank in launch["ranks"]:
            if not (process := os.fork()):
                for one in (lines, answers, connection):
                    one.close()
                become_rank(launch["script"], launch["arguments"], **rank)
                return launch["script"]
            started.append(process)
        print(json.dumps(started), file=answers, flush=True)
        for _ in started:
            process, status = os.wait()
            print(json.dumps([process, os.waitstatus_to_exitcode(status)]), file=answers, flush=True)
    return None


def end():
    """End as the interpreter does, without freeing torch and transformers, which takes 0.2 s.

    `engine/group/test_join_group.py` lets interpreters end.
    """
    threading._shutdown()  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    warnings.simplefilter("default")
    gc.freeze()  # no process need search what was imported for cyclic garbage, and copy it in doing so
    connection = connection_of(socket.socket(fileno=int(sys.argv[1])))
    if connection and (script := serve(connection)):
        runpy.run_path(script, run_name="__main__")
        end()
