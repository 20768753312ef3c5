"""What `modular-convert modularize` does with its options: read, modularize, write or show, report."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

import click

from modular_converter.authoring.arguments import choose_models
from modular_converter.authoring.flat_model import read_flat_model
from modular_converter.authoring.library_index import LibraryIndex, read_index
from modular_converter.authoring.modularize import Modularized, modularize
from modular_converter.authoring.report import summary_values, text
from modular_converter.commands.output import print_diff, report
from modular_converter.convert.source.library import Library
from modular_converter.diagnostics import ConversionError, Diagnostic, Location
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.links import is_installed
from modular_converter.rules import read_only_target


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
            reason = "it belongs to an installed package; give --output-dir"
            raise ConversionError(read_only_target.diagnose(Location(chosen.models), reason))
        library = Library(chosen.settings)
        index = read_index(chosen.models, library)
    except ConversionError as error:
        report(error.diagnostics)
        return 2
    findings: list[Diagnostic] = []
    summaries = []
    differs = False
    for folder, model in chosen.named:
        try:
            result = _modularize(folder, model, index, library, options)
        except ConversionError as error:
            findings += error.diagnostics
            continue
        if result.proof is not None:
            index = index.with_modular(result.flat.modular, result.proof.sources)
        differs |= bool(result.left) or result.proof is None or (options.diff and _old(result) != result.proof.text)
        summaries.append(summary_values(result))
        if options.output_format == "text":
            click.echo(text(result), err=options.diff)
    if options.output_format == "json":
        click.echo(json.dumps({"schema": "modular-converter/modularize", "version": 1, "models": summaries}, indent=2))
    report(findings)
    return 2 if findings else int(differs)


def _modularize(
    folder: str, model: str, index: LibraryIndex, library: Library, options: ModularizeOptions
) -> Modularized:
    """Modularize one model, and write or show the result."""
    result = modularize(read_flat_model(folder, model, library), index, library, options.preferred)
    if result.proof is None:
        return result
    target = result.flat.modular
    if options.diff:
        print_diff(os.path.relpath(target), _old(result), result.proof.text, options.output_format)
    elif options.writes:
        root = os.path.dirname(target)
        if options.output_dir:
            root = os.path.abspath(options.output_dir)
            target = os.path.join(root, os.path.basename(folder), os.path.basename(target))
        if os.path.lexists(target):
            reason = "it exists; show the differences with --diff, or give --output-dir"
            raise ConversionError(read_only_target.diagnose(Location(target), reason))
        write_atomically(target, result.proof.text, root)
    return result


def _old(result: Modularized) -> str | None:
    """The text of the modular file that the model has; None where it has none."""
    try:
        with open(result.flat.modular, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None
