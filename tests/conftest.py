"""Settings of all tests: no time limits on generated examples, which are the same in each run of the gate; interruptible
commands; a folder for kept answers of this run alone; and summaries are printed."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import hypothesis
import pytest


# A loaded machine is slow, and that is no defect of the code under test.
hypothesis.settings.register_profile("without deadlines", deadline=None)
# The gate tells what a change has broken. New examples are drawn in runs by hand, and kept as cases when one fails.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("gate" if os.environ.get("CI") else "without deadlines")

# A job in the background of a script ignores Ctrl-C, and so would the commands that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_CACHE = "MODULAR_CONVERTER_CACHE"


def pytest_configure(config: pytest.Config) -> None:
    """What was proven of a model once is not proven again in this run, in whichever of its processes."""
    if not hasattr(config, "workerinput"):  # workers get the folder from the process that starts them
        folder = os.environ[_CACHE] = tempfile.mkdtemp(prefix="modular-converter-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session")
def pool():
    """Two processes for verifications of plans."""
    pytest.importorskip("transformers")
    from modular_converter.parallel.proof.on_ranks import RankPool

    with RankPool(2) as found:
        yield found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the `summary` that tests record with `record_property`."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "summary":
                    terminalreporter.write_line(f"{report.nodeid}: {value}")
