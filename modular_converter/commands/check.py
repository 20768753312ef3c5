"""The `check-modular-conversion` command. Only click is imported to print the help."""

from __future__ import annotations

import gc
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from modular_converter import __version__
from modular_converter.commands.shared import FilesCommand, run_command


if TYPE_CHECKING:
    from modular_converter.check.compare import CheckResult, Difference

DIFF_LINES = 120
"""Lines of a diff that are shown of one file; the rest are counted."""


@click.command(cls=FilesCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("files", nargs=-1, metavar="[FILES]...")
@click.option(
    "--files",
    "--files-to-parse",
    "-f",
    "listed",
    multiple=True,
    metavar="FILES...",
    help="The same as plain arguments.",
)
@click.option("--fix", "--fix_and_overwrite", "--fix-and-overwrite", "fix", is_flag=True, help="Write what differs.")
@click.option("--changed-since", metavar="REF", help="Check only what changes since this commit affect.")
@click.option("--workers", "--num_workers", "workers", type=click.IntRange(0), metavar="N", help="Processes at most.")
@click.option("--package", metavar="NAME", help="The installed package whose models are meant.")
@click.option("--root", metavar="DIR", help="The folder of models, or the package folder that holds it.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(("text", "json", "github", "sarif")),
    default="text",
    help="Form of the findings.",
)
@click.option("--statistics", is_flag=True, help="Count the findings by rule.")
@click.option("--no-cache", is_flag=True, help="Convert every file, and remember nothing.")
@click.option("--clear-cache", is_flag=True, help="Forget what earlier runs have remembered, first.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--quiet", "-q", is_flag=True, help="Print errors only, and no diffs.")
@click.version_option(__version__, prog_name="check-modular-conversion")
def check_command(
    files: tuple[str, ...],
    listed: tuple[str, ...],
    output_format: str,
    statistics: bool,
    quiet: bool,
    no_cache: bool,
    clear_cache: bool,
    **options: Any,
) -> None:
    """Check that generated files are what their modular files give. Nothing is written without --fix.

    FILES are modular files, globs, folders, model names, or "all", which is the default.

    \b
    Exit code: 0 all well; 1 findings; 2 something could not be checked.
    """
    gc.disable()  # a short life without cyclic garbage: looking for it is a fortieth of a run that converts nothing
    from modular_converter.check.cache.store import cache_folder
    from modular_converter.check.compare import CheckOptions, check

    started = time.perf_counter()
    if clear_cache:
        _clear(cache_folder(), quiet)
    cache = None if no_cache else cache_folder()
    errors_only = quiet and not statistics
    arguments = (*files, *listed) or ("all",)
    result = check(CheckOptions(arguments=arguments, cache=cache, errors_only=errors_only, **options))
    if not quiet:
        for difference in result.differences:
            _print_diff(difference, in_text=output_format == "text")
    _report(result, output_format, quiet)
    if statistics:
        _count(result)
    if not quiet:
        _tell_trouble(result, cache)
        _summarize(result, time.perf_counter() - started)
    gc.freeze()  # nor at its end
    raise SystemExit(result.exit_code)


def _print_diff(difference: Difference, *, in_text: bool) -> None:
    """A unified diff from the file to what it should be, bounded, with a count of the lines left out.

    It goes to stderr when stdout is for the findings, which a program reads.
    """
    from modular_converter.reporting import wants_color
    from modular_converter.reporting.diffs import colored, unified

    lines = unified(difference.path, difference.old, difference.new)
    for line in colored(lines[:DIFF_LINES], wants_color(sys.stdout if in_text else sys.stderr)):
        click.echo(line, color=True, err=not in_text)
    if len(lines) > DIFF_LINES:
        click.echo(f"… {len(lines) - DIFF_LINES} more lines", err=not in_text)


def _report(result: CheckResult, output_format: str, quiet: bool) -> None:
    """Findings for people go to stderr, for programs to stdout."""
    shown = [one for one in result.diagnostics if one.is_error or not quiet]
    in_text = output_format == "text"
    if in_text and not shown:
        return
    from modular_converter.reporting import render, wants_color

    text = render(output_format, shown, color=in_text and wants_color(sys.stderr))
    if text:
        click.echo(text.rstrip("\n"), err=in_text)


def _clear(folder: str, quiet: bool) -> None:
    """Forget what is remembered; tell what could not be removed."""
    from modular_converter.check.cache.store import clear

    if (reason := clear(folder)) and not quiet:
        _tell_of_cache(folder, f"could not be cleared: {reason}")


def _tell_trouble(result: CheckResult, cache: str | None) -> None:
    """Say that nothing is remembered, and why, when that will cost time again."""
    from modular_converter.check.cache.lookup import OnDisk

    if cache is None or all(isinstance(conversion.files, OnDisk) for conversion in result.conversions):
        return
    from modular_converter.check.cache.store import unusable

    if reason := unusable(cache):
        _tell_of_cache(cache, f"remembers nothing for the next run: {reason}")


def _tell_of_cache(folder: str, trouble: str) -> None:
    from modular_converter.check.cache.store import VARIABLE
    from modular_converter.reporting import safe

    advice = f"set {VARIABLE} to a folder that can be written to, or give --no-cache"
    click.echo(safe.line(f"the cache {folder} {trouble}; {advice}", safe.WIDEST_MESSAGE), err=True)


def _count(result: CheckResult) -> None:
    """Print how often each rule is broken, the most frequent first."""
    counts: dict[str, int] = {}
    for diagnostic in result.diagnostics:
        key = f"{diagnostic.code} {diagnostic.rule.name}"
        counts[key] = counts.get(key, 0) + 1
    for key, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        click.echo(f"{number:>6}  {key}", err=True)


def _summarize(result: CheckResult, seconds: float) -> None:
    from modular_converter.reporting.counts import count

    failed = sum(conversion.failed for conversion in result.conversions)
    files = sum(len(conversion.files) for conversion in result.conversions)
    parts = [count(len(result.conversions), "modular file"), count(files, "generated file")]
    if not result.conversions:
        parts = ["nothing was checked" if result.incomplete else "no modular file is affected"]
    different = len(result.differences)
    parts += [f"{different} {'differs' if different == 1 else 'differ'}"] if different else []
    parts += [f"{len(result.written)} written"] if result.written else []
    parts += [f"{failed} could not be converted"] if failed else []
    click.echo(", ".join(parts) + f", {seconds:.2f} s", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    run_command(check_command, arguments, "check-modular-conversion")
