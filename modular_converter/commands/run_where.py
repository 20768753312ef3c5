"""The work of `modular-convert where`: look up each line, print the answers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import click

from modular_converter.check.cache.store import cache_folder
from modular_converter.commands.options import progress, report
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import require_file
from modular_converter.findings import ConversionError, Finding, exit_code
from modular_converter.provenance.generated import Answer, Kind, LineRange, TracedLines, Tracer
from modular_converter.reporting.display import count, report_line, shown_path, shown_posix
from modular_converter.reporting.json_format import dump
from modular_converter.settings.load import load_settings_of
from modular_converter.settings.values import Settings


MOST_SHOWN = 3
"""Lines of one place that the text quotes."""
MOST_DIGITS = 9
"""The most digits of a line number; Python refuses to read a number of thousands of digits."""


def run(places: Sequence[str], output_format: str) -> int:
    """Answer for each `FILE:LINE`, and return the exit code."""
    asked = [_split(place) for place in places]
    answers: list[Answer] = []
    findings: list[Finding] = []
    tracers: dict[Settings, Tracer] = {}
    for path, line in asked:
        try:
            require_file(path)
            settings = load_settings_of([path])
            tracer = tracers.setdefault(settings, Tracer(settings, Library(settings), cache=cache_folder()))
            with progress("following the line"):
                answers.append(tracer.where(path, line))
            findings += (one for one in answers[-1].findings if one not in findings)
        except ConversionError as error:
            findings += (one for one in error.findings if one not in findings)
    if output_format == "json":
        records = {"schema": "modular-converter/where", "version": 2, "lines": list(map(_record, answers))}
        click.echo(dump(records), nl=False)
    else:
        for answer in answers:
            click.echo("\n".join(_lines(answer)))
    report(findings)
    return exit_code(findings)


def _split(place: str) -> tuple[str, int]:
    """`path:line` or `path:line:column` as an absolute path and a line."""
    path, _, last = place.rpartition(":")
    before, _, line = path.rpartition(":")
    if before and line.isdecimal() and last.isdecimal() and not os.path.isfile(path):
        path, last = before, line
    if not path or not (last.isascii() and last.isdecimal() and len(last) <= MOST_DIGITS) or int(last) == 0:
        raise click.UsageError(f"{place!r} is not FILE:LINE, such as models/gemma/modeling_gemma.py:57.")
    return os.path.abspath(path), int(last)


def _lines(answer: Answer) -> Iterator[str]:
    """The answer for people."""
    line = answer.line
    yield _head(line.place, line.definition)
    yield from _quoted(line.texts, 1)
    if line.kind is Kind.FLAT:
        yield "  written by hand: it is neither a generated nor a modular file"
    elif line.kind is Kind.GENERATED:
        if not line.origins:
            yield "  made by the converter or the formatter: no line of another file stands behind it"
        yield from _sources(line, 1)
    elif not answer.destinations:
        yield "  ends up in no generated file: the conversion reads it, or it stands for other lines"
    for one in answer.destinations:
        through = f" through {count(one.neighbours, 'neighbour')}" if one.neighbours else ""
        yield f"  -> {_head(one.place, one.definition)}{through}"
        yield from _quoted(one.texts, 2)


def _sources(line: TracedLines, depth: int) -> Iterator[str]:
    for one in line.origins:
        hint = " (made there by the converter)" if one.kind is Kind.GENERATED and not one.origins else ""
        yield f"{'  ' * depth}<- {_head(one.place, one.definition)}{hint}"
        yield from _quoted(one.texts, depth + 1)
        yield from _sources(one, depth + 1)
    if depth == 1 and line.neighbours:
        yield f"  through {count(line.neighbours, 'neighbour')}"


def _head(place: LineRange, definition: str) -> str:
    lines = f"{place.first}" if place.first == place.last else f"{place.first}-{place.last}"
    name = f" in {definition}" if definition else ""
    return report_line(f"{shown_path(place.path, os.getcwd())}:{lines}{name}")


def _quoted(texts: Sequence[str], depth: int) -> Iterator[str]:
    margin = min((len(text) - len(text.lstrip()) for text in texts if text.strip()), default=0)
    for text in texts[:MOST_SHOWN]:
        yield ("  " * depth + "| " + report_line(text[margin:])).rstrip()
    if len(texts) > MOST_SHOWN:
        yield f"{'  ' * depth}| … {len(texts) - MOST_SHOWN} more lines"


def _record(answer: Answer) -> dict[str, object]:
    """The answer for programs."""
    destinations = [
        {**_place(one.place), "definition": one.definition, "text": "\n".join(one.texts), "neighbours": one.neighbours}
        for one in answer.destinations
    ]
    return {**_origin(answer.line), "neighbours": answer.line.neighbours, "destinations": destinations}


def _origin(line: TracedLines) -> dict[str, object]:
    return {
        **_place(line.place),
        "kind": line.kind.value,
        "definition": line.definition,
        "text": "\n".join(line.texts),
        "origins": list(map(_origin, line.origins)),
    }


def _place(place: LineRange) -> dict[str, object]:
    return {"path": shown_posix(place.path, os.getcwd()), "line": place.first, "end_line": place.last}
