"""Processes keep what they share from one round of work to the next, and their failures are raised here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from modular_converter.convert import batch
from modular_converter.convert.batch import Workers


@pytest.fixture(autouse=True)
def _in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "ITEMS_PER_PROCESS", {"fork": 1, "spawn": 1})


def looked_up(names: Iterable[str], shared: dict[str, int], progress: Callable[[int], None]) -> list[tuple[int, int]]:
    return [(shared[name], os.getpid()) for name in names]


def killed(names: Iterable[str], shared: dict[str, int], progress: Callable[[int], None]) -> list[int]:
    os._exit(1)


def test_what_is_told_is_known_to_all_and_no_process_is_started_again() -> None:
    done: list[int] = []
    with Workers({"a": 1, "b": 2}, 2) as workers:
        first = workers.do(looked_up, "abaab", done.append)
        workers.tell(dict.update, {"b": 3})
        second = workers.do(looked_up, "bbaab", done.append)
    assert [value for value, _ in first + second] == [1, 2, 1, 1, 2, 3, 3, 1, 1, 3]
    assert sum(done) == 10
    pids = [{pid for _, pid in found} for found in (first, second)]
    assert os.getpid() not in pids[0] | pids[1] and len(pids[0] | pids[1]) <= 2


def test_an_error_is_raised_here_with_its_traceback_and_an_end_is_no_hang() -> None:
    with Workers({"a": 1}, 2) as workers:
        with pytest.raises(KeyError, match="b") as raised:
            workers.do(looked_up, "aab")
        assert "looked_up" in str(raised.value.__cause__)
    with Workers({"a": 1}, 2) as workers, pytest.raises(RuntimeError, match="has ended"):
        workers.do(killed, "aab")
