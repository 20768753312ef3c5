"""What a test has to say about the whole run is printed at its end, also when it ran in another process."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the `summary` that tests record with `record_property`."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "summary":
                    terminalreporter.write_line(f"{report.nodeid}: {value}")
