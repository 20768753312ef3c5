"""The life of one rank: how it waits for messages. The rest is tested through sessions."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest

from modular_converter.parallel.ranks.worker import receive


@pytest.mark.parametrize("patience", [0.0, 0.05, 5.0])
@pytest.mark.parametrize("late", [0.0, 0.2])
def test_a_message_arrives_before_and_after_patience_ends(patience, late):
    ours, theirs = multiprocessing.Pipe()
    sender = threading.Timer(late, ours.send_bytes, (b"hello",))
    sender.start()
    assert receive(theirs, patience) == b"hello"
    sender.join()


@pytest.mark.parametrize("patience", [0.0, 600.0])
def test_a_closed_pipe_ends_the_wait_at_once(patience):
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    start = time.monotonic()
    with pytest.raises(EOFError):
        receive(theirs, patience)
    assert time.monotonic() - start < 60
