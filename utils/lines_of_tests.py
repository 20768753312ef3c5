"""A plugin of pytest for `mutate_code.py`: which lines each test executes, and runs of chosen tests in a given order.

`LINES_OF_TESTS` names a file that is written: under `tests` the seconds of each test that passes and its lines by file, also
those that processes execute which it starts, and without those that only an import executes; under `failed` the other tests.
A test has the lines behind what it takes from a cache or from a fixture of several tests, too, but not those behind what an
earlier test of its file has put into a dictionary of the tests.
`LIMIT_OF_TESTS` are the seconds that each may take. `CHOSEN_TESTS` names a file with the tests to run in this order, each
with the seconds that it may take.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


# By the name that `sitecustomize.py` imports it under: its notes are those of the process.
lines_of_processes = importlib.import_module("utils.lines_of_processes")


class Recorder:
    """Notes the lines of the product that run while a test does."""

    def __init__(self, target: str, limit: float) -> None:
        self.target, self.limit = target, limit
        self.failed: set[str] = set()
        self.folder = tempfile.mkdtemp(dir=os.path.dirname(target))
        lines_of_processes.tell_test(self.folder, 0)
        os.environ[lines_of_processes.VARIABLE] = self.folder
        self.notes = lines_of_processes.Notes(self.folder, os.getcwd())
        self.seconds: dict[str, float] = {}
        self.fixtures: dict[str, set[str]] = {}
        self.numbers = {"": 0}
        """Test or fixture -> its number."""

    @contextlib.contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        """What runs belongs to a test or to a fixture."""
        before = int.from_bytes(self.notes.turn[:], "little")
        lines_of_processes.tell_test(self.folder, self.numbers.setdefault(name, len(self.numbers)))
        try:
            yield
        finally:
            lines_of_processes.tell_test(self.folder, before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        _clear_caches()
        self.fixtures[item.nodeid] = {*getattr(item, "fixturenames", ())}
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        start = time.perf_counter()
        self.notes.follow()
        with self._turn(item.nodeid):
            try:
                return (yield)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self.seconds[item.nodeid] = time.perf_counter() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        with self._turn(fixturedef.argname):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= {report.nodeid} if report.failed else set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.failed |= {report.nodeid} if report.failed else set()  # a file that cannot be imported

    def pytest_sessionfinish(self) -> None:
        found = lines_of_processes.noted(self.folder)
        passed: dict[str, dict[str, Any]] = {}
        for test, seconds in self.seconds.items():
            lines: dict[str, set[int]] = {}
            for name in {test, *self.fixtures[test]} & {*self.numbers}:
                for path, more in found.get(self.numbers[name], {}).items():
                    lines.setdefault(path, set()).update(more)
            if test not in self.failed:
                passed[test] = {"seconds": seconds, "lines": {path: sorted(more) for path, more in lines.items()}}
        Path(self.target).write_text(json.dumps({"tests": passed, "failed": sorted(self.failed)}))


def _clear_caches() -> None:
    """Empty the caches of our functions."""
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "modular_converter":
            for one in [*vars(module).values()]:
                if isinstance(one, functools._lru_cache_wrapper):
                    one.cache_clear()


class Chooser:
    """Runs some of the collected tests, in the order of a list, and ends the process where one takes too long."""

    def __init__(self, chosen: dict[str, float]) -> None:
        self.chosen = chosen
        self.place = {name: place for place, name in enumerate(chosen)}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        signal.setitimer(signal.ITIMER_REAL, self.chosen[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((one for one in items if one.nodeid in self.place), key=lambda one: self.place[one.nodeid])


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugins that the environment variables ask for."""
    if target := os.environ.get("LINES_OF_TESTS"):
        config.pluginmanager.register(Recorder(target, float(os.environ["LIMIT_OF_TESTS"])))
    if chosen := os.environ.get("CHOSEN_TESTS"):
        config.pluginmanager.register(Chooser(json.loads(Path(chosen).read_text())))
