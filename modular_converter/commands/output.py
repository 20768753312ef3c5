"""The output of the commands: findings and diffs. Text for people goes to stderr, data for programs to stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click


if TYPE_CHECKING:
    from modular_converter.findings import Finding


FILES_FOR_PROGRESS = 5
"""The number of files from which a terminal shows a progress bar."""


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


def print_diff(path: str, old: str | None, new: str, output_format: str = "text", limit: int | None = None) -> None:
    """Print a unified diff of a generated file, to stderr when stdout is for findings that a program reads.

    Args:
        old: the text on disk; None for a file that does not exist.
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


@contextmanager
def progress_bar(action: str, files: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A function that advances a bar on stderr by a number of files; without a terminal and for few files, nothing.

    Args:
        action: what is done to the files, such as `Converting`.
        files: how many there are.
        quiet: show nothing.
    """
    if files < FILES_FOR_PROGRESS or quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(action, total=files)
        yield lambda done: bar.advance(task, done)
