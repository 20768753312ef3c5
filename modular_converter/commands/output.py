"""The output of the commands: findings and diffs. Text for people goes to stderr, data for programs to stdout."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click


if TYPE_CHECKING:
    from modular_converter.findings import Finding


FILES_FOR_PROGRESS = 5
"""The number of files from which a terminal shows how many are done."""
SECONDS_FOR_PROGRESS = 1.0
"""A step that cannot be counted is shown if it takes longer."""


def report(findings: Sequence[Finding], output_format: str = "text", *, quiet: bool = False) -> None:
    """Print findings in one of `reporting.FORMATS`: text to stderr, the other formats to stdout.

    Args:
        quiet: leave out warnings.
    """
    shown = [finding for finding in findings if finding.is_error or not quiet]
    in_text = output_format == "text"
    if in_text and not shown:
        return  # a check of current files does not load the renderers
    from modular_converter.reporting import render, wants_color

    text = render(output_format, shown, color=in_text and wants_color(sys.stderr))
    if text:
        click.echo(text.rstrip("\n"), err=in_text, color=True)


def fixable(findings: Iterable[Finding]) -> str:
    """How many findings have a fix, for the closing line of a command: ` (3 with a fix, 1 of them unsafe)`."""
    found = [one.applicability for one in findings if one.fix]
    if not found:
        return ""
    unsafe = found.count("unsafe")
    return f" ({len(found)} with a fix{f', {unsafe} of them unsafe' if unsafe else ''}: `modular-convert --fix`)"


def print_diff(path: str, old: str | None, new: str, output_format: str = "text", limit: int | None = None) -> int:
    """Print a unified diff of a generated file, to stderr when stdout is for findings that a program reads; return the
    number of lines.

    Args:
        old: the text on disk; None for a file that does not exist.
        new: the text that it should have.
        limit: the number of lines to print; the lines beyond are counted.
    """
    from modular_converter.reporting import wants_color
    from modular_converter.reporting.diffs import colored, unified

    to_stderr = output_format != "text"
    lines = unified(path, old, new)
    for line in colored(lines[:limit], wants_color(sys.stderr if to_stderr else sys.stdout)):
        click.echo(line, err=to_stderr, color=True)
    if limit is not None and len(lines) > limit:
        click.echo(f"… {len(lines) - limit} more lines", err=to_stderr)
    return len(lines[:limit])


class _Line:
    """A line of stderr that is written again and again, and is gone at the end."""

    def __init__(self, action: str, total: int) -> None:
        self.action, self.total, self.done, self.is_shown = action, total, 0, False

    def show(self) -> None:
        counts = f" {self.done} of {self.total}" if self.total else ""
        self._write(f"{self.action}{counts} …")
        self.is_shown = True

    def advance(self, done: int) -> None:
        self.done += done
        self.show()

    def begin(self, action: str) -> None:
        self.action = action
        if self.is_shown:
            self.show()

    def clear(self) -> None:
        if self.is_shown:
            self._write("")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


@contextmanager
def progress(action: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show on a terminal what a command is busy with; elsewhere nothing. Gives a function to call with how many more
    files are done.

    Args:
        action: what is done, such as `converting`.
        total: the number of files; few show nothing. None for a step that cannot be counted, which is shown once it has
            taken a while.
        quiet: show nothing.
    """
    if quiet or not shows_progress() or (total is not None and total < FILES_FOR_PROGRESS):
        yield lambda done: None
        return
    with _shown(_Line(action, total or 0), at_once=total is not None) as line:
        yield line.advance


@contextmanager
def steps(first: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """The same for several steps that cannot be counted. Gives a function to call with the step that begins."""
    if quiet or not shows_progress():
        yield lambda step: None
        return
    with _shown(_Line(first, 0), at_once=False) as line:
        yield line.begin


@contextmanager
def _shown(line: _Line, *, at_once: bool) -> Iterator[_Line]:
    """A line that is shown at once, or once a step has taken a while, and is gone at the end."""
    later = threading.Timer(SECONDS_FOR_PROGRESS, line.show)
    later.daemon = True
    if at_once:
        line.show()
    else:
        later.start()
    try:
        yield line
    finally:
        later.cancel()
        line.clear()


def shows_progress() -> bool:
    """Whether a person watches stderr."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
