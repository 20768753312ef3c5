"""A plugin of pytest for `mutate_code.py`: which lines each test executes, and runs of chosen tests in a given order.

`LINES_OF_TESTS` names a file that is written: under `tests` the seconds of each test that passes and its lines by file, also
those that processes execute which it starts, and without those that only an import executes; under `failed` the other tests;
and under `modules` what was imported from elsewhere. A test has the lines behind what it takes from a cache or from a fixture
of several tests, too. `LIMIT_OF_TESTS` are the seconds that each may take. `CHOSEN_TESTS` names a file with the tests to run in this order, each with the seconds that it may take.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
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
        os.register_at_fork(after_in_child=lambda: lines_of_processes.Notes(self.folder, os.getcwd()))
        self.found: dict[str, dict[str, Any]] = {}
        self.lines: dict[str, set[int]] = {}
        self.of_fixtures: dict[str, dict[str, set[int]]] = {}
        self.own = os.path.join(os.getcwd(), "modular_converter", "")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.lines = {}
        _clear_caches()
        lines_of_processes.tell_test(self.folder, len(self.found) + 1)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        start = time.perf_counter()
        threading.settrace(self._enter)  # of ranks that are threads
        sys.settrace(self._enter)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            sys.settrace(None)
            threading.settrace(None)
            for name in getattr(item, "fixturenames", ()):
                _add(self.lines, self.of_fixtures.get(name, {}))
            lines = {path.removeprefix(os.getcwd() + os.sep): sorted(found) for path, found in self.lines.items()}
            self.found[item.nodeid] = {"seconds": time.perf_counter() - start, "lines": lines}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        outer, self.lines = self.lines, {}
        try:
            return (yield)
        finally:
            _add(self.of_fixtures.setdefault(fixturedef.argname, {}), self.lines)
            self.lines = outer

    def _enter(self, frame: FrameType, event: str, argument: object) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(self.own) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return None  # the body of a module or class: the first test that imports it would be the only one
        add = self.lines.setdefault(path, set()).add

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            add(frame.f_lineno)
            return trace

        return trace

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= {report.nodeid} if report.failed else set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.failed |= {report.nodeid} if report.failed else set()  # a file that cannot be imported

    def pytest_sessionfinish(self) -> None:
        here = os.getcwd() + os.sep
        of_processes = lines_of_processes.noted(self.folder)
        for number, one in enumerate(self.found.values(), 1):
            for path, lines in of_processes.get(number, {}).items():
                one["lines"][path] = sorted({*one["lines"].get(path, ()), *lines})
        passed = {name: one for name, one in self.found.items() if name not in self.failed}
        modules = [
            name
            for name, one in [*sys.modules.items()]
            if not (getattr(one, "__file__", None) or here).startswith(here)
        ]
        Path(self.target).write_text(json.dumps({"tests": passed, "failed": sorted(self.failed), "modules": modules}))


def _add(lines: dict[str, set[int]], more: dict[str, set[int]]) -> None:
    for path, found in more.items():
        lines.setdefault(path, set()).update(found)


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
