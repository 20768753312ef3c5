"""The work of `modular-convert modularize`: read the models, modularize, write or show, report."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from modular_converter.authoring.arguments import choose_models
from modular_converter.authoring.flat_model import read_flat_model
from modular_converter.authoring.library_index import read_index
from modular_converter.authoring.modularize import Modularized, modularize_allowing
from modular_converter.authoring.report import summary_values, text
from modular_converter.commands.output import print_diff, progress, report
from modular_converter.convert.source.library import Library
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.generated_files import current_text, path_of_generated
from modular_converter.files.read import is_installed
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import input_files
from modular_converter.settings.layout import modular_name, names_of_models
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class ModularizeOptions:
    """The options of the command line; None where an option is missing."""

    models: tuple[str, ...]
    package: str | None = None
    root: str | None = None
    output_dir: str | None = None
    diff: bool = False
    dry_run: bool = False
    preferred: Sequence[str] = ()
    younger: bool = False
    allowed: Sequence[str] = ()
    output_format: str = "text"

    @property
    def writes(self) -> bool:
        """Whether modular files are written."""
        return not (self.diff or self.dry_run)


def run(options: ModularizeOptions) -> int:
    """Modularize the models that the command line means, and return the exit code."""
    try:
        chosen = choose_models(options.models, options.package, options.root)
        if options.writes and not options.output_dir and is_installed(chosen.models):
            raise ConversionError(input_files.installed(Location(chosen.models)))
        for name in options.preferred:
            if name not in (known := names_of_models(chosen.models, chosen.settings)):
                raise ConversionError(input_files.model(Location(name), known))
        library = Library(chosen.settings)
        with progress("reading the library"):
            index = replace(read_index(chosen.models, library), any_age=options.younger)
    except ConversionError as error:
        report(error.findings)
        return 2
    findings: list[Finding] = []
    summaries = []
    differs = False
    for folder, model in chosen.named:
        try:
            _refuse_existing(os.path.join(folder, modular_name(model, chosen.settings)), chosen.settings, options)
            flat = read_flat_model(folder, model, library)
            with progress(f"modularizing {model}"):
                result = modularize_allowing(flat, index, library, options.preferred, options.allowed).worthwhile
            differs |= bool(result.left) or result.proof is None
            if result.proof is not None:
                differs |= _write_or_show(result.flat.modular, result.proof.text, chosen.settings, options)
                _show_accepted(result, options)
        except ConversionError as error:
            findings += error.findings
            continue
        if result.proof is not None:
            index = index.with_modular(result.flat.modular, result.proof.sources)
        summaries.append(summary_values(result))
        if options.output_format == "text":
            click.echo(text(result), err=options.diff)
    if options.output_format == "json":
        click.echo(json.dumps({"schema": "modular-converter/modularize", "version": 1, "models": summaries}, indent=2))
    report(findings)
    return 2 if findings else int(differs)


def _write_or_show(modular: str, text: str, settings: Settings, options: ModularizeOptions) -> bool:
    """Write a modular file, or show how it would change; return whether a shown file would change."""
    if options.diff:
        old = current_text(modular, settings)
        print_diff(os.path.relpath(modular), old, text, options.output_format)
        return old != text
    if options.writes:
        target, folder = _target(modular, settings, options)
        write_atomically(target, text, folder or os.path.dirname(target))
    return False


def _target(modular: str, settings: Settings, options: ModularizeOptions) -> tuple[str, str]:
    """The place of a modular file that is written, and the folder of `--output-dir`."""
    folder = os.path.abspath(options.output_dir) if options.output_dir else ""
    return path_of_generated(modular, replace(settings, output_dir=folder)), folder


def _refuse_existing(modular: str, settings: Settings, options: ModularizeOptions) -> None:
    """Raise `ConversionError` for a file that would be written over another one, before the work of finding it."""
    target, _ = _target(modular, settings, options)
    if options.writes and os.path.lexists(target):
        raise ConversionError(input_files.modular_exists(Location(target)))


def _show_accepted(result: Modularized, options: ModularizeOptions) -> None:
    """With `--diff`, print how the docstrings and comments of classes change."""
    for old, new in result.accepted.values() if options.diff else ():
        print_diff(os.path.relpath(result.flat.folder), f"{old}\n", f"{new}\n", options.output_format)
