"""The work of `modular-convert`: find the files, convert, write or compare, report; with `--fix`, apply the fixes of findings."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

import click

from modular_converter.authoring.fixes import FixedFile, apply_fixes, is_wanted, write_modular
from modular_converter.commands.options import fixable, print_diff, progress, report
from modular_converter.convert.batch import Run
from modular_converter.convert.silence import release_first
from modular_converter.files.arguments import Selection, select_files
from modular_converter.files.read import is_installed
from modular_converter.files.write import current_text, is_about_release, path_of_generated, put_in_place
from modular_converter.findings import Conversion, ConversionError, Finding, Location, exit_code
from modular_converter.reporting.display import count, report_line
from modular_converter.rules import input_files
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class ConvertOptions:
    """The options of the command line; None where an option is missing."""

    arguments: tuple[str, ...]
    package: str | None = None
    root: str | None = None
    output_dir: str | None = None
    fix: bool = False
    unsafe_fixes: bool = False
    diff: bool = False
    dry_run: bool = False
    workers: int | None = None
    formatter: str | None = None
    strict: bool = False
    accept_release: str | None = None
    quiet: bool = False
    verbose: bool = False
    output_format: str = "text"
    content: bytes | None = None
    """The text of the only modular file, which was given on the standard input."""

    @property
    def writes(self) -> bool:
        """Whether generated files are written."""
        return not (self.diff or self.dry_run or self.prints)

    @property
    def prints(self) -> bool:
        """Whether the generated texts are printed in place of being written."""
        return self.content is not None and not (self.diff or self.dry_run)

    @property
    def stream(self) -> TextIO:
        """The stream for lists of files: stdout, unless a program reads the findings there."""
        return sys.stdout if self.output_format == "text" else sys.stderr


@dataclass
class ConvertResult:
    """The conversions of a run, its findings, and its counts of files and lines."""

    conversions: Sequence[Conversion]
    findings: list[Finding]
    changed: int = 0
    """Generated files that differ from the disk, where nothing is written."""
    written: int = 0
    generated_lines: int = 0
    modular_lines: int = 0


def run(options: ConvertOptions) -> int:
    """Convert the files that the command line means, write or compare, report; return the exit code."""
    started = time.perf_counter()
    try:
        selection = prepare(options)
        conversions = _convert(options, selection)
    except ConversionError as error:
        report(error.findings, options.output_format, quiet=options.quiet)
        return exit_code(error.findings, incomplete=not is_about_release(error.findings))
    findings = list(selection.findings) + [one for conversion in conversions for one in conversion.findings]
    findings = list(dict.fromkeys(findings))  # a formatter that cannot be used stops every file
    result = ConvertResult(conversions, findings)
    for conversion in conversions:
        _place(conversion, options, selection, result)
    result.findings = release_first(result.findings, selection.settings)
    report(result.findings, options.output_format, quiet=options.quiet)
    if options.verbose:
        print("".join(f"\n{one.details}" for one in result.findings if one.details), end="", file=sys.stderr)
    if not options.quiet:
        _summarize(options, result, time.perf_counter() - started)
    return exit_code(result.findings, different=result.changed > 0)


def _convert(options: ConvertOptions, selection: Selection) -> Sequence[Conversion]:
    """The conversions of the selected files, with `--fix` those of the fixed files."""
    with progress("converting", len(selection.paths), quiet=options.quiet) as advance:
        batch = Run(selection.settings, dict(selection.given), workers=selection.settings.workers, progress=advance)
        conversions = batch.convert(selection.paths)
    fixed = _fixed(conversions, selection.settings, options) if options.fix else {}
    return (
        Run(selection.settings, fixed, selection.settings.workers).convert(selection.paths) if fixed else conversions
    )


def prepare(options: ConvertOptions) -> Selection:
    """Find the files, and read the settings of their project.

    Raises `ConversionError` for a wrong setting or folder, and for an installed package that would be written to.
    """
    overrides = {
        "formatter": options.formatter,
        "workers": options.workers,
        "strict": options.strict,
        "accept_release": options.accept_release,
        "output_dir": os.path.abspath(options.output_dir) if options.output_dir else None,
        "root": os.path.abspath(options.root) if options.root else None,
    }
    selection = select_files(
        options.arguments, package=options.package, root=options.root, overrides=overrides, content=options.content
    )
    if refusal := _refuse_installed(selection, options):
        raise ConversionError(*selection.findings, refusal)
    return selection


def _refuse_installed(selection: Selection, options: ConvertOptions) -> Finding | None:
    """The error for an installed package that would be written to; None where nothing is wrong."""
    installed = next(filter(is_installed, selection.paths), None)
    if installed is None or selection.settings.output_dir or not options.writes:
        return None
    return input_files.installed(Location(os.path.dirname(installed)))


def _place(conversion: Conversion, options: ConvertOptions, selection: Selection, result: ConvertResult) -> None:
    """Write, print or compare the files of one conversion, and count them."""
    settings = selection.settings
    result.modular_lines += _lines_of(conversion.path, selection)
    for path, text in conversion.files.items():
        target = path_of_generated(path, settings)
        result.generated_lines += text.count("\n")
        if options.verbose:
            print(os.path.relpath(target), file=options.stream)
            for origin in conversion.origins.get(path, ()):
                print(
                    f"  {origin.name}: {origin.how} {os.path.relpath(origin.path)}:{origin.line}", file=options.stream
                )
        try:
            if options.prints:
                heading = "" if len(conversion.files) == 1 else f"==> {os.path.relpath(target)} <==\n"
                click.echo(f"{heading}{text}", nl=False)
            elif options.writes:
                result.written += put_in_place(target, text, conversion.path, settings)
            elif (old := current_text(target, settings)) != text:
                result.changed += 1
                if options.diff:
                    print_diff(target, old, text, options.output_format)
                elif not options.quiet:
                    action = "would change" if old is not None else "would be new"
                    print(f"{os.path.relpath(target)}: {action}", file=options.stream)
        except ConversionError as error:
            result.findings += (one for one in error.findings if one not in result.findings)


def _lines_of(path: str, selection: Selection) -> int:
    """The number of lines of a file; 0 when it cannot be read, which the conversion has reported."""
    if path in selection.given:
        return selection.given[path].count("\n")
    try:
        return (current_text(path, selection.settings) or "").count("\n")
    except ConversionError:
        return 0


def _summarize(options: ConvertOptions, result: ConvertResult, seconds: float) -> None:
    """Print one line with the counts of files, lines and warnings."""
    done = sum(not conversion.failed for conversion in result.conversions)
    failed = len(result.conversions) - done
    files = sum(len(conversion.files) for conversion in result.conversions)
    total = count(len(result.conversions), "modular file")
    parts = [f"{done} of {total} converted" if failed else total]
    action = f"{result.written} written" if options.writes else f"{result.changed} would change"
    action = "printed" if options.prints else action
    parts.append(f"{count(files, 'generated file')} ({action})")
    parts.append(f"{result.modular_lines:,} -> {result.generated_lines:,} lines")
    warnings = sum(not finding.is_error for finding in result.findings)
    if warnings:
        parts.append(count(warnings, "warning") + fixable(result.findings))
    print(", ".join(parts) + f", {seconds:.2f} s", file=sys.stderr)


def _fixed(conversions: Sequence[Conversion], settings: Settings, options: ConvertOptions) -> dict[str, str]:
    """Apply the fixes to each modular file, and write or show it; path -> new text of those that change.

    Raises `ConversionError` for a file that may not be written.
    """
    texts: dict[str, str] = {}
    for conversion in conversions:
        if not any(is_wanted(finding, options.unsafe_fixes) for finding in conversion.findings):
            continue
        fixed = apply_fixes(conversion.path, settings, options.unsafe_fixes)
        if fixed.applied:
            texts[fixed.path] = fixed.new
            if options.diff:
                print_diff(fixed.path, fixed.old, fixed.new, options.output_format)
            elif options.writes:
                write_modular(fixed.path, fixed.new, settings)
        if not options.quiet:
            _tell(fixed, "fixed" if options.writes else "would be fixed")
    return texts


def _tell(fixed: FixedFile, verb: str) -> None:
    """Print to stderr the findings that are fixed, and the fixes that do not hold."""
    path = os.path.relpath(fixed.path)
    if fixed.applied:
        titles = ", ".join(f"{one.code} {one.fix.title}" for one in fixed.applied if one.fix)
        print(report_line(f"{path}: {count(len(fixed.applied), 'finding')} {verb}: {titles}"), file=sys.stderr)
    for one in fixed.refused:
        reason = "its fix would change other lines too, so it is not applied"
        print(report_line(f"{path}:{one.location.line}: {one.code}: {reason}"), file=sys.stderr)
