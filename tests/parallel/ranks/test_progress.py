"""Counters that ranks share with the main process: all of them leave a call at the same token."""

import threading
import time

import pytest

from modular_converter.parallel.ranks.protocol import Arena, CallStopped, Progress, stop_all


class Running(threading.Thread):
    """A rank that counts tokens until it is stopped, each after another wait."""

    def __init__(self, progress, waits, together):
        super().__init__(daemon=True)
        self.progress, self.waits, self.together, self.steps = progress, waits, together, 0

    def run(self):
        for wait in self.waits:
            time.sleep(wait)
            try:
                self.progress.step()
            except CallStopped:
                return
            self.steps += 1
            self.together.wait(60.0)  # as in a collective


@pytest.mark.parametrize("after", [0.0, 0.003, 0.02])
def test_ranks_stop_at_the_same_token(after):
    shared = [Progress(Arena.create(), owner=True) for _ in range(3)]
    together = threading.Barrier(3)
    ranks = [Running(one, [0.001 * n] * 5000, together) for n, one in enumerate(shared)]
    for rank in ranks:
        rank.start()
    time.sleep(after)
    stop_all(shared)
    for rank in ranks:
        rank.join(60.0)
    assert {rank.steps for rank in ranks} <= set(range(5000)) and len({rank.steps for rank in ranks}) == 1
    for one in shared:
        one.begin()
        one.step()
        one.meet()
        assert one.met == 1
        one.close()
