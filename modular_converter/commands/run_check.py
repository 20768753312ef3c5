"""The work of `check-modular-conversion`: check, report, count, and say if the cache fails."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import click

from modular_converter.check.cache.store import VARIABLE, cache_folder, clear, unusable
from modular_converter.check.run import CheckOptions, CheckResult, check
from modular_converter.commands.options import fixable, print_diff, progress, report
from modular_converter.files.arguments import means_many
from modular_converter.findings import Conversion, ConversionError, Finding
from modular_converter.reporting import display
from modular_converter.reporting.display import count
from modular_converter.rules import UnknownRuleError, by_code, off_by_default
from modular_converter.settings.values import Settings


FORMATS_FOR_PEOPLE = ("text", "github")
"""The formats that leave out the warnings of files that nobody works on; programs that read the others compare runs."""
DIFF_LINES = 120
"""Lines of diffs that are printed of files that were named; the rest are counted."""
OVERVIEW_DIFF_LINES, OVERVIEW_FINDINGS = 12, 4
"""The same, and the number of findings, of a check of many files: what a hook prints fits on a screen."""


def run(
    arguments: tuple[str, ...],
    *,
    output_format: str,
    statistics: bool,
    quiet: bool,
    no_cache: bool,
    clear_cache: bool,
    select: Sequence[str] = (),
    full: bool = False,
    add_ignores: bool = False,
    **others: Any,
) -> int:
    """Check the files that the command line means, print the result, and return the exit code. `others` are fields of
    `CheckOptions`.
    """
    started = time.perf_counter()
    selected = frozenset(map(_code_of_rule_off, select))
    if clear_cache and (reason := clear(cache_folder())) and not quiet:
        _warn_of_cache(cache_folder(), f"could not be cleared: {reason}")
    cache = None if no_cache else cache_folder()
    errors_only = quiet and not statistics and not add_ignores
    is_overview = not (quiet or full) and any(map(means_many, arguments))
    bar = functools.partial(progress, "converting", quiet=quiet)
    options = CheckOptions(arguments, cache=cache, errors_only=errors_only, bar=bar, **others)
    result = check(options)
    if add_ignores and result.settings is not None:
        if failure := _silence(result.conversions, result.settings):
            report(failure, output_format)
            return 2
        result = check(options)
    extra, is_reported = _of_rules_off(result, selected, counted=statistics)
    if is_reported:
        result = result._replace(findings=[*result.findings, *extra])
    if not quiet:
        _print_diffs(result, output_format, None if full else OVERVIEW_DIFF_LINES if is_overview else DIFF_LINES)
    left_out = frozenset() if quiet or full else _left_out(result, options, output_format)
    reported = [one for one in result.findings if one not in left_out]
    shown = _first(reported) if is_overview and output_format == "text" else reported
    report(shown, output_format, quiet=quiet)
    if statistics:
        print_statistics([*result.findings, *(() if is_reported else extra)])
    if not quiet:
        if cache is not None and result.converted and (reason := unusable(cache)):
            _warn_of_cache(cache, f"remembers nothing for the next run: {reason}")
        _summarize(result, len(left_out), len(reported) - len(shown), time.perf_counter() - started)
    return result.exit_code


def _silence(conversions: Sequence[Conversion], settings: Settings) -> Sequence[Finding]:
    """Silence the warnings by comments, and say how many; the findings tell why files may not be written."""
    from modular_converter.authoring.fixes import add_ignores  # loads the whole converter

    try:
        silenced, files = add_ignores(conversions, settings)
    except ConversionError as error:
        return error.findings
    click.echo(f"{count(silenced, 'warning')} silenced by comments in {count(files, 'file')}", err=True)
    return ()


def _print_diffs(result: CheckResult, output_format: str, most: int | None) -> None:
    """Print the diffs that are to be shown, in at most so many lines; None for all. The rest are counted."""
    left = most
    for number, one in enumerate(shown := [one for one in result.differences if one.is_shown]):
        if left is not None and left <= 0:
            click.echo(f"… the diffs of {count(len(shown) - number, 'more file')}", err=output_format != "text")
            return
        printed = print_diff(one.path, one.old, one.new, output_format, left)
        left = None if left is None else left - printed


def _first(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that an overview shows: errors rather than warnings, in their order."""
    chosen = sorted(findings, key=lambda one: not one.is_error)[:OVERVIEW_FINDINGS]
    return [one for one in findings if one in chosen]


def _left_out(result: CheckResult, options: CheckOptions, output_format: str) -> frozenset[Finding]:
    """The warnings that people are not shown: of files that are current and unchanged, where no file is named by itself."""
    settings = result.settings
    if settings is None or output_format not in FORMATS_FOR_PEOPLE or all(one.is_error for one in result.findings):
        return frozenset()
    if len(result.conversions) == 1 or not any(map(means_many, options.arguments)):
        return frozenset()
    from modular_converter.check.blame import warnings_of_untouched  # git is asked only where there are warnings

    different = {one.modular for one in result.differences}
    return warnings_of_untouched(result.conversions, different, settings, options.changed_since or "HEAD")


def _of_rules_off(result: CheckResult, selected: Collection[str], *, counted: bool) -> tuple[Sequence[Finding], bool]:
    """The findings of the rules that are off by default, and whether they are reported or only counted; nothing is read if
    no such rule is selected.

    Args:
        selected: the codes that the command line asks for.
        counted: whether `--statistics` counts them all.
    """
    settings = result.settings
    if settings is None or not (selected or counted or settings.select != ("MC",)):
        return (), False
    reported = off_by_default().intersection((*settings.select, *selected))
    if not (reported or counted):
        return (), False
    from modular_converter.authoring.sources import find_inheritable

    settings = replace(settings, select=(*settings.select, *off_by_default()))
    paths = [conversion.path for conversion in result.conversions]
    return find_inheritable(paths, settings), bool(reported)


def _code_of_rule_off(entry: str) -> str:
    """The code of a rule that is off by default. Raises `UsageError` for any other rule."""
    try:
        rule = by_code(entry)
    except UnknownRuleError as error:
        raise click.UsageError(str(error)) from None
    if rule.by_default:
        off = ", ".join(sorted(off_by_default()))
        raise click.UsageError(
            f"{rule.code} is reported anyway; --select is for rules that are off by default: {off}."
        )
    return rule.code


def _warn_of_cache(folder: str, trouble: str) -> None:
    advice = f"set {VARIABLE} to a folder that can be written to, or give --no-cache"
    click.echo(display.report_line(f"the cache {folder} {trouble}; {advice}", display.WIDEST_MESSAGE), err=True)


def print_statistics(findings: Sequence[Finding]) -> None:
    """Print the number of findings of each rule to stderr: the most frequent first, then by code."""
    counts = Counter(f"{finding.code} {finding.rule.name}" for finding in findings)
    for rule, number in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        click.echo(f"{number:>6}  {rule}", err=True)


def _summarize(result: CheckResult, left_out: int, hidden: int, seconds: float) -> None:
    """Print one line with the counts of files and findings.

    Args:
        left_out: how many of its warnings were not printed, since nobody works on their files.
        hidden: how many other findings were not printed.
    """
    failed = sum(conversion.failed for conversion in result.conversions)
    files = sum(len(conversion.files) for conversion in result.conversions)
    parts = [count(len(result.conversions), "modular file"), count(files, "generated file")]
    if not result.conversions:
        parts = ["nothing was checked" if result.incomplete else "no modular file is affected"]
    different = len(result.differences)
    parts += [f"{different} {'differs' if different == 1 else 'differ'}"] if different else []
    parts += [f"{len(result.written)} written"] if result.written else []
    parts += [f"{failed} could not be converted"] if failed else []
    warnings = sum(not one.is_error for one in result.findings)
    unseen = f" ({left_out} of unchanged files not shown: --full)" if left_out else ""
    parts += [count(warnings, "warning") + unseen + fixable(result.findings)] if warnings else []
    parts += [f"{count(hidden, 'more finding')}: --full"] if hidden else []
    click.echo(", ".join(parts) + f", {seconds:.2f} s", err=True)
