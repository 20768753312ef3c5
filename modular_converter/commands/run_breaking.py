"""The work of `check-modular-conversion --breaking`: compare two trees, report, and write the table for a comment."""

from __future__ import annotations

import functools
import os
import time
from typing import Any

import click

from modular_converter.breaking.comment import comment
from modular_converter.breaking.run import BreakingOptions, BreakingResult, compare_trees
from modular_converter.check.cache.store import cache_folder
from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.output import report
from modular_converter.convert.batch import without_collector
from modular_converter.files.atomic_write import replace_file
from modular_converter.findings import exit_code
from modular_converter.reporting.display import count, shown_posix


NOT_MEANT = ("fix", "changed_since", "statistics", "select", "clear_cache")
"""Options of the check that say nothing about a comparison."""


def run(
    arguments: tuple[str, ...],
    against: str,
    markdown: str | None,
    *,
    output_format: str,
    quiet: bool,
    no_cache: bool,
    **others: Any,
) -> int:
    """Compare the models with an older tree, print what changes, and return the exit code: 1 where an error or, with
    `--strict`, any change is found; 2 where a tree could not be read. `others` are the other options of a check.
    """
    started = time.perf_counter()
    if given := [name for name in NOT_MEANT if others.get(name)]:
        raise click.UsageError(f"--breaking does not go with --{given[0].replace('_', '-')}.")
    cache, tree = None if no_cache else cache_folder(), (others["package"], others["root"])
    with without_collector():
        strict, workers = others["strict"], others["workers"] or 0
        result = compare_trees(BreakingOptions(against, arguments, *tree, workers, strict, cache))
    report(result.findings, output_format, quiet=quiet)
    if markdown:
        checked = check(CheckOptions(arguments, *tree, workers=others["workers"], cache=cache))
        shown = functools.partial(shown_posix, folder=os.getcwd())
        _write(markdown, comment(checked.differences, result.groups, shown))
    if not quiet:
        _summarize(result, against, time.perf_counter() - started)
    return exit_code(result.findings, incomplete=result.incomplete)


def _write(path: str, text: str) -> None:
    if path == "-":
        click.echo(text, nl=False)
    else:
        replace_file(os.path.abspath(path), text.encode("utf-8", "backslashreplace"))


def _summarize(result: BreakingResult, against: str, seconds: float) -> None:
    """Print one line with the counts."""
    if result.incomplete and not result.models:
        return
    reached = {model for group in result.groups for model in group.models}
    parts = [f"{count(result.models, 'model')} compared with {against}", f"{len(reached)} changed for their users"]
    parts.append(count(len(result.findings), "finding"))
    click.echo(", ".join(parts) + f", {seconds:.2f} s", err=True)
