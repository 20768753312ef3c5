"""The work of `check-modular-conversion --breaking`: compare two trees, report, and write what a pull request means as one
bounded Markdown text: generated files that are out of date, with their cause and a patch, and what changes for users.

The sources are a stranger's, and a job with rights posts the text. So nothing of them is Markdown or HTML in it: texts
are written as entities, and the patch stands in a fence that is longer than any in it.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from modular_converter.breaking.report import NAMED, CauseGroup
from modular_converter.breaking.run import BreakingResult, compare_trees
from modular_converter.check.cache.store import cache_folder
from modular_converter.check.compare import Difference
from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.options import refuse_missing_folder, report
from modular_converter.convert.batch import without_collector
from modular_converter.files.write import write_result
from modular_converter.findings import ConversionError, exit_code, first_of
from modular_converter.reporting.diffs import unified
from modular_converter.reporting.display import count, shown_posix
from modular_converter.rules import by_code


NOT_MEANT = {
    "fix": "write",
    "changed_since": "changed-since",
    "statistics": "statistics",
    "select": "select",
    "clear_cache": "clear-cache",
}
"""Options of the check that say nothing about a comparison, and their names for users."""


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
        raise click.UsageError(f"--breaking does not go with --{NOT_MEANT[given[0]]}.")
    refuse_missing_folder(markdown, "--markdown")
    named = {name: others[name] for name in ("package", "root", "workers", "strict")}
    options = CheckOptions(arguments, cache=None if no_cache else cache_folder(), **named)
    with without_collector():
        result = compare_trees(against, options)
    report(result.findings, output_format, quiet=quiet)
    if markdown:
        checked = check(options._replace(strict=False))
        shown = functools.partial(shown_posix, folder=os.getcwd())
        text = comment(checked.differences, result.groups, shown)
        try:
            write_result(markdown, text.encode("utf-8", "backslashreplace").decode())
        except ConversionError as error:
            report(error.findings, output_format)
            return exit_code(error.findings)
    if not quiet:
        _summarize(result, against, time.perf_counter() - started)
    return exit_code(result.findings, incomplete=result.incomplete)


def _summarize(result: BreakingResult, against: str, seconds: float) -> None:
    """Print one line with the counts."""
    if result.incomplete and not result.models:
        return
    reached = {model for group in result.groups for model in group.models}
    parts = [f"{count(result.models, 'model')} compared with {against}", f"{len(reached)} changed for their users"]
    parts.append(count(len(result.findings), "finding"))
    click.echo(", ".join(parts) + f", {seconds:.2f} s", err=True)


MOST_ROWS = 40
MOST_STALE = 20
MOST_LINES = 200
"""Lines of the patch."""
MOST_CHARACTERS = 60_000
"""GitHub takes 65,536."""
WORDS = 1_000
"""The characters of them that are kept for headings and for what is left out."""
CHECK = "check-modular-conversion"
_PLAIN = re.compile(r"[^\w .,;=/-]")


def comment(stale: Sequence[Difference], found: Sequence[CauseGroup], shown: Callable[[str], str]) -> str:
    """The text, of at most `MOST_CHARACTERS`.

    Args:
        stale: the generated files that are out of date.
        found: what changes, by cause.
        shown: the path that readers see.
    """
    room = MOST_CHARACTERS - WORDS
    text = "## Models\n\n" + _stale(stale, shown, room // 4)
    text += "\n### What changes for those who use the models\n\n" + _causes(found, shown, room // 2)
    return text + _patch(stale, MOST_CHARACTERS - len(text))


def _fitting(parts: Sequence[str], most: int, room: int) -> Sequence[str]:
    """The first parts, as many as are allowed and fit."""
    ends = itertools.accumulate(len(one) + 1 for one in parts[:most])
    return parts[: sum(end <= room for end in ends)]


def _left_out(number: int, noun: str, command: str) -> str:
    return f"\n{count(number, noun)} left out here: `{command}` shows all.\n" if number else ""


def _stale(stale: Sequence[Difference], shown: Callable[[str], str], room: int) -> str:
    if not stale:
        return "All generated files are what their modular files give.\n"
    rows = [f"* {_plain(shown(one.path))}: {_plain(finding.message)}" for one in stale for finding in one.findings[:1]]
    kept = _fitting(rows, MOST_STALE, room)
    head = f"### {count(len(stale), 'generated file')} out of date\n"
    cure = "\n`check-modular-conversion --write` writes them; the patch below is the same.\n"
    return "\n".join([head, *kept, _left_out(len(rows) - len(kept), "file", CHECK + " --full"), cure])


def _causes(found: Sequence[CauseGroup], shown: Callable[[str], str], room: int) -> str:
    if not found:
        return "Nothing.\n"
    rows = [
        f"| {by_code(one.rule).code} | {_plain(shown(one.cause.path))}:{one.cause.line} | {_plain(one.message)} "
        f"| {len(one.models)} | {one.keys or ''} | {_plain(first_of(one.models, NAMED))} |"
        for one in found
    ]
    kept = _fitting(rows, MOST_ROWS, room)
    head = ["| code | cause | what changes | models | keys | reached |", "| --- | --- | --- | ---: | ---: | --- |"]
    return (
        "\n".join([*head, *kept]) + "\n" + _left_out(len(rows) - len(kept), "cause", f"{CHECK} --breaking --against …")
    )


def _patch(stale: Sequence[Difference], room: int) -> str:
    """The hunks that fit, each whole."""
    hunks = [hunk for one in stale if one.is_shown for hunk in _hunks(unified(one.path, one.old, one.new))]
    if not hunks:
        return ""
    ends = itertools.accumulate(one.count("\n") + 1 for one in hunks)
    number = len(_fitting(hunks, sum(end <= MOST_LINES for end in ends), room))
    while len(text := _details(hunks[:number], len(hunks) - number)) > room and number:
        number -= 1
    return text


def _hunks(lines: Sequence[str]) -> list[str]:
    """The hunks of the diff of a file, the first with the names of the file."""
    starts = [number for number, line in enumerate(lines) if line.startswith("@@")]
    return ["\n".join(lines[start:end]) for start, end in zip([0, *starts[1:]], [*starts[1:], len(lines)])]


def _details(hunks: Sequence[str], rest: int) -> str:
    body = "\n".join(hunks)
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    shown = f"\n{fence}diff\n{body}\n{fence}\n" if hunks else ""
    return f"\n<details><summary>patch</summary>\n{shown}{_left_out(rest, 'hunk', CHECK + ' --full')}</details>\n"


def _plain(text: str) -> str:
    """A text in which nothing is Markdown, HTML, a mention or an address."""
    return _PLAIN.sub(lambda found: f"&#{ord(found[0])};", " ".join(text.split()))
