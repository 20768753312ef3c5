"""What `modular-convert` does once its arguments are read: find, convert, write or compare, report."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TextIO

from modular_converter.convert.batch import Progress, Run
from modular_converter.convert.conversion import Conversion
from modular_converter.diagnostics import ConversionError, Diagnostic, Location, Severity
from modular_converter.files.arguments import Found, discover, models_folder, settings_of
from modular_converter.files.generated_files import current_text, put_in_place, target_of
from modular_converter.files.links import is_installed
from modular_converter.reporting import render, wants_color
from modular_converter.reporting.counts import count
from modular_converter.reporting.diffs import colored, unified
from modular_converter.rules import read_only_target
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import Settings


FILES_FOR_PROGRESS = 5
"""From this many files on a terminal shows a progress bar."""


@dataclass(frozen=True)
class ConvertOptions:
    """The command line, as values; None where an option was left out."""

    arguments: tuple[str, ...]
    package: str | None = None
    root: str | None = None
    output_dir: str | None = None
    diff: bool = False
    dry_run: bool = False
    workers: int | None = None
    formatter: str | None = None
    strict: bool = False
    quiet: bool = False
    verbose: bool = False
    output_format: str = "text"

    @property
    def writes(self) -> bool:
        """Whether files are written at all."""
        return not (self.diff or self.dry_run)

    @property
    def stream(self) -> TextIO:
        """Where diffs and lists go: findings in a form for programs have stdout to themselves."""
        return sys.stdout if self.output_format == "text" else sys.stderr


@dataclass(frozen=True)
class Plan:
    """What the command line has come to mean."""

    settings: Settings
    models: str | None
    """The folder of models, when one is known."""
    found: Found


@dataclass
class Outcome:
    """What a run has come to."""

    conversions: Sequence[Conversion]
    diagnostics: list[Diagnostic]
    changed: int = 0
    written: int = 0
    generated_lines: int = 0
    modular_lines: int = 0

    @property
    def exit_code(self) -> int:
        """2 when something could not be done, 1 with findings or differences only, else 0."""
        errors = [diagnostic for diagnostic in self.diagnostics if diagnostic.is_error]
        if any(error.code.startswith("MC1") for error in errors):
            return 2
        return 1 if errors or self.changed else 0


def run(options: ConvertOptions) -> int:
    """Do what the command line asks for; return the exit code."""
    started = time.perf_counter()
    try:
        plan = prepare(options)
    except ConversionError as error:
        report(options, list(error.diagnostics))
        return 2
    settings, found = plan.settings, plan.found
    with _progress(options, len(found.paths)) as progress:
        conversions = Run(settings, workers=settings.workers, progress=progress).convert(found.paths)
    diagnostics = list(found.problems) + [one for conversion in conversions for one in conversion.diagnostics]
    outcome = Outcome(conversions, diagnostics)
    for conversion in conversions:
        _place(conversion, options, settings, outcome)
    report(options, outcome.diagnostics)
    if not options.quiet:
        _summarize(options, outcome, time.perf_counter() - started)
    return outcome.exit_code


def prepare(options: ConvertOptions) -> Plan:
    """Read the settings of the project that the files lie in, and find the files.

    Raises `ConversionError` for settings or a folder that are wrong, and for an installed package to be written to.
    """
    settings = _overridden(load_settings(options.root or os.getcwd()), options)
    models = models_folder(options.package, options.root, settings.root)
    found = discover(options.arguments, models)
    if found.paths:
        settings = _overridden(settings_of(found.paths, options.arguments), options)
    if refusal := _refuse_installed(found.paths, options, settings):
        raise ConversionError(*found.problems, refusal)
    return Plan(settings, models, found)


def _overridden(settings: Settings, options: ConvertOptions) -> Settings:
    changes: dict[str, object] = {}
    if options.formatter:
        changes["formatter"] = options.formatter
    if options.workers is not None:
        changes["workers"] = options.workers
    if options.strict:
        changes["strict"] = True
    if options.output_dir:
        changes["output_dir"] = os.path.abspath(options.output_dir)
    if options.root:
        changes["root"] = os.path.abspath(options.root)
    return replace(settings, **changes)  # type: ignore[arg-type]


def _refuse_installed(paths: Sequence[str], options: ConvertOptions, settings: Settings) -> Diagnostic | None:
    """An installed package is read-only: what is generated from it goes elsewhere."""
    installed = next(filter(is_installed, paths), None)
    if installed is None or settings.output_dir or not options.writes:
        return None
    location = Location(os.path.dirname(installed))
    return read_only_target.diagnose(location, "it belongs to an installed package; give --output-dir")


def _place(conversion: Conversion, options: ConvertOptions, settings: Settings, outcome: Outcome) -> None:
    """Write or compare the files of one conversion, and count."""
    outcome.modular_lines += _lines_of(conversion.path, settings)
    for path, text in conversion.files.items():
        target = target_of(path, settings)
        outcome.generated_lines += text.count("\n")
        if options.verbose:
            _tell_origins(target, path, conversion, options.stream)
        try:
            if options.writes:
                outcome.written += put_in_place(target, text, conversion.path, settings)
            elif (old := current_text(target, settings)) != text:
                outcome.changed += 1
                _tell_change(target, old, text, options)
        except ConversionError as error:
            outcome.diagnostics += (one for one in error.diagnostics if one not in outcome.diagnostics)


def _tell_change(target: str, old: str | None, text: str, options: ConvertOptions) -> None:
    if options.diff:
        for line in colored(unified(target, old, text), wants_color(options.stream)):
            print(line, file=options.stream)
    elif not options.quiet:
        action = "would change" if old is not None else "would be new"
        print(f"{os.path.relpath(target)}: {action}", file=options.stream)


def _lines_of(path: str, settings: Settings) -> int:
    try:
        return (current_text(path, settings) or "").count("\n")
    except ConversionError:
        return 0


def _tell_origins(target: str, path: str, conversion: Conversion, stream: TextIO) -> None:
    print(os.path.relpath(target), file=stream)
    for origin in conversion.origins.get(path, ()):
        print(f"  {origin.name}: {origin.how} {os.path.relpath(origin.path)}:{origin.line}", file=stream)


def report(options: ConvertOptions, diagnostics: list[Diagnostic]) -> None:
    """Findings for people go to stderr, for programs to stdout."""
    shown = [one for one in diagnostics if one.severity is Severity.ERROR or not options.quiet]
    if options.output_format == "text":
        text = render("text", shown, color=wants_color(sys.stderr))
        stream = sys.stderr
    else:
        text, stream = render(options.output_format, shown), sys.stdout
    if text:
        print(text.rstrip("\n"), file=stream)


def _summarize(options: ConvertOptions, outcome: Outcome, seconds: float) -> None:
    done = sum(not conversion.failed for conversion in outcome.conversions)
    failed = len(outcome.conversions) - done
    files = sum(len(conversion.files) for conversion in outcome.conversions)
    total = count(len(outcome.conversions), "modular file")
    parts = [f"{done} of {total} converted" if failed else total]
    action = f"{outcome.written} written" if options.writes else f"{outcome.changed} would change"
    parts.append(f"{count(files, 'generated file')} ({action})")
    parts.append(f"{outcome.modular_lines:,} -> {outcome.generated_lines:,} lines")
    warnings = sum(not diagnostic.is_error for diagnostic in outcome.diagnostics)
    if warnings:
        parts.append(count(warnings, "warning"))
    print(", ".join(parts) + f", {seconds:.2f} s", file=sys.stderr)


@contextmanager
def _progress(options: ConvertOptions, files: int) -> Iterator[Progress]:
    if files < FILES_FOR_PROGRESS or options.quiet or not sys.stderr.isatty():
        yield lambda converted: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Converting", total=files)
        yield lambda converted: bar.advance(task, converted)
