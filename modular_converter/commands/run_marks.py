"""The work of `modular-convert marks`: find the files, audit the marks, correct copies, report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence

import click

from modular_converter.commands.options import print_diff, progress, report
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import ALL, Listings, ModelFolders, model_folder, required_models_folder
from modular_converter.files.write import write_sources
from modular_converter.findings import ConversionError, Finding, Location, Severity, exit_code
from modular_converter.marks.audit import MarkVerdict, audit
from modular_converter.marks.fix import Repair, repair
from modular_converter.marks.units import differing
from modular_converter.reporting.display import count
from modular_converter.rules import stale_files
from modular_converter.settings.load import load_settings


def run(
    paths: Sequence[str],
    *,
    package: str | None,
    root: str | None,
    write: bool,
    write_unsafe: bool,
    diff: bool,
    strict: bool,
    output_format: str,
) -> int:
    """Audit the marks in the files that the command line means, and return the exit code."""
    try:
        folder, files = _files(paths, package, root)
        library = Library(load_settings(folder))
        with progress("auditing the marks"):
            done = Repair(audit(files, library))
        if diff:
            for one in done.audit.marks:
                if one.source is not None and one.copy is not None:
                    print_diff(one.path, one.copy.text, one.source.text, output_format)
        elif write or write_unsafe:
            done = repair(done.audit, files, library, write_unsafe)
            write_sources(done.texts, library.settings)
    except ConversionError as error:
        report(error.findings, output_format)
        return 2
    findings = [*done.audit.findings, *_findings(done, library)]
    if strict:
        findings = [finding.with_severity(Severity.ERROR) for finding in findings]
    report(findings, output_format)
    _summarize(done)
    return exit_code(findings)


def _files(arguments: Sequence[str], package: str | None, root: str | None) -> tuple[str, list[str]]:
    """A folder of the project, and the files that the arguments mean, sorted.

    Raises `ConversionError` for an argument that means none.
    """
    found: dict[str, None] = {}
    start = root or os.getcwd()
    for argument in arguments:
        if os.path.isfile(argument):
            found[os.path.abspath(argument)] = None
            start = os.path.dirname(argument) or start
            continue
        folder = argument
        if not os.path.isdir(argument):
            models = required_models_folder(package, root)
            folder = models if argument == ALL else model_folder(argument, models, load_settings(models))
        start = folder
        files = ModelFolders(Listings(), lambda name: name.endswith(".py")).files_below(os.path.abspath(folder))
        found.update(dict.fromkeys(files))
    return os.path.abspath(start), sorted(found)


def _findings(done: Repair, library: Library) -> Iterator[Finding]:
    """One finding for each mark that is not identical."""
    for one in done.audit.marks:
        mark, end = one.mark, one.mark.column + len(one.mark.text)
        place = Location(one.path, mark.line, mark.column, mark.line, end)
        if one.verdict is MarkVerdict.DRIFTED and one.source is not None and one.copy is not None:
            members = [name for name in differing(one.source, one.copy) if name] if one.source.is_class else []
            refusal = done.refused.get(one.key, "")
            signature = not members and [unit.lines for unit in one.source.body] == [
                unit.lines for unit in one.copy.body
            ]
            finding = stale_files.drifted_copy(place, one.name, mark.source, members, refusal, signature=signature)
        elif one.verdict is MarkVerdict.DANGLING:
            finding = stale_files.dangling_copy(place, mark.source, one.reason)
        elif one.verdict is MarkVerdict.INVISIBLE:
            finding = stale_files.invisible_copy(place, one.reason)
        else:
            continue
        yield finding.with_source(library.text(one.path))


def _summarize(done: Repair) -> None:
    """Print one line with the counts to stderr."""
    verdicts = Counter(one.verdict for one in done.audit.marks)
    parts = [count(len(done.audit.marks), "mark")]
    parts += [f"{verdicts[verdict]:,} {verdict.value}" for verdict in MarkVerdict]
    if done.fixed:
        parts.append(f"{done.fixed} put right")
    if done.audit.in_generated:
        parts.append(f"{done.audit.in_generated} in generated files left out")
    click.echo(", ".join(parts), err=True)
