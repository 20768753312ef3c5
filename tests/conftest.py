"""Settings of all tests: no time limits on generated examples, which are the same in each run of the gate; interruptible
commands; a folder for kept answers of this run alone; and summaries are printed."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import sys
import tempfile

import hypothesis
import pytest


gc.disable()  # while tests are collected: 1.8 of 11.4 s of CPU time of each process of a run

# A loaded machine is slow, and that is no defect of the code under test.
hypothesis.settings.register_profile("without deadlines", deadline=None)
# The gate tells what a change has broken. New examples are drawn in runs by hand, and kept as cases when one fails.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("gate" if os.environ.get("CI") else "without deadlines")

# Before torch is imported: threads of several processes on the same cores wait for each other, six times as long as one
# thread takes for a small model.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Each process that a test starts would compile the package again, 0.4 s, and each process of the run the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A job in the background of a script ignores Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_CACHE = "MODULAR_CONVERTER_CACHE"


def pytest_configure(config: pytest.Config) -> None:
    """What was proven of a model once is not proven again in this run, in whichever of its processes."""
    if not hasattr(config, "workerinput"):  # workers get the folder from the process that starts them
        folder = os.environ[_CACHE] = tempfile.mkdtemp(prefix="modular-converter-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


_LONG = ("test_mutate_code.py", "test_docs_commands.py", "test_docs.py")
"""The long ones among the last files: 6 to 9 s of CPU time, which one process of a run would do while the others wait."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files start in the order of their tests."""
    items.sort(key=lambda item: item.path.name not in _LONG)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no search for cyclic garbage goes through it again, a tenth of a run's time.

    What tests import later is searched seldom: by Python's own limits that takes 4 to 9 % of the CPU time of tests of the
    wing (two parts of it, measured with both), and the limits below make no process larger.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)


@pytest.fixture(scope="session")
def pool():
    """Two processes for verifications of plans."""
    pytest.importorskip("transformers")
    from modular_converter.parallel.proof.on_ranks import RankPool

    with RankPool(2) as found:
        yield found


@pytest.fixture
def one_pool(pool, monkeypatch):
    """The commands take two processes that run already."""
    from modular_converter.parallel.proof import on_ranks

    monkeypatch.setattr(on_ranks, "RankPool", lambda size: contextlib.nullcontext(pool))


@pytest.fixture(scope="session")
def _derived():
    """What the commands have derived in this process: model, settings and head -> plan."""
    return {}


@pytest.fixture
def derived_once(_derived, monkeypatch):
    """Each model's plan is derived once for the commands of all tests that change nothing about how."""
    pytest.importorskip("transformers")
    from modular_converter.parallel import cli
    from modular_converter.parallel.commands import common, kinds, write

    def derived_of(model, settings, head="base"):
        question = model, settings, head
        if question not in _derived:
            _derived[question] = common.derived_of(*question)
        return _derived[question]

    for module in (cli, kinds, write):
        monkeypatch.setattr(module, "derived_of", derived_of)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the `summary` that tests record with `record_property`."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "summary":
                    terminalreporter.write_line(f"{report.nodeid}: {value}")
