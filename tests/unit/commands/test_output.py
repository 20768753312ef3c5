"""What a terminal shows while a command is busy, and that nobody else sees it."""

from __future__ import annotations

import io
import sys

import pytest

from modular_converter.commands import options


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, total: int | None, *, quiet: bool = False) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(options, "SECONDS_FOR_PROGRESS", 0.0)
    with options.progress("converting", total, quiet=quiet) as advance:
        if total is None:
            while not stream.getvalue() and stream.isatty() and not quiet:
                pass
        advance(2)
    return stream.getvalue()


def test_a_terminal_sees_the_count_and_then_an_empty_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal(), 9)
    assert "converting 0 of 9 …" in text and "converting 2 of 9 …" in text and text.endswith("\r\x1b[K")


def test_a_step_without_a_count_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, Terminal(), None)
    assert "converting …" in text and text.endswith("\r\x1b[K")


def test_the_step_that_runs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(options, "SECONDS_FOR_PROGRESS", 0.0)
    with options.steps("parallelize") as begin:
        while not stream.getvalue():
            pass
        begin("choosing a plan")
    assert stream.getvalue() == "\r\x1b[Kparallelize …\r\x1b[Kchoosing a plan …\r\x1b[K"


@pytest.mark.parametrize(
    ("stream", "total", "quiet"), [(io.StringIO(), 9, False), (Terminal(), 2, False), (Terminal(), None, True)]
)
def test_a_pipe_a_short_run_and_a_quiet_one_see_nothing(
    monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, total: int | None, quiet: bool
) -> None:
    assert shown(monkeypatch, stream, total, quiet=quiet) == ""


@pytest.mark.parametrize("colored", ["stdout", "stderr"])
@pytest.mark.parametrize(("output_format", "printed"), [("text", "stdout"), ("json", "stderr")])
def test_a_diff_has_the_colors_of_where_it_is_printed(
    colored: str, output_format: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modular_converter.reporting.wants_color", lambda stream: stream is getattr(sys, colored))
    assert options.print_diff("a.py", "x\n", "y\n", output_format) == 5
    text = dict(zip(("stdout", "stderr"), capsys.readouterr()))
    assert "+y" in text[printed] and ("\x1b[" in text[printed]) is (colored == printed)
    assert "".join(text.values()) == text[printed]
