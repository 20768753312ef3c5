"""The work of `modular-convert modularize`, `suggest` and `absorb`: read the models, find, write or show, report."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import click

from modular_converter.authoring.absorb import absorb
from modular_converter.authoring.attempt import FileDifference, Proof
from modular_converter.authoring.draft import How
from modular_converter.authoring.flat_model import FlatModel, choose_models, read_flat_model
from modular_converter.authoring.library_index import read_index
from modular_converter.authoring.modularize import Modularized, modularize_allowing
from modular_converter.authoring.sources import Suggestion, snippet, suggest
from modular_converter.commands.options import print_diff, progress, report
from modular_converter.convert.batch import without_collector
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import require_file
from modular_converter.files.read import is_installed
from modular_converter.files.write import current_text, path_of_generated, write_atomically, write_sources
from modular_converter.findings import ConversionError, Finding, Location, exit_code
from modular_converter.reporting.display import count, shown_path
from modular_converter.rules import input_files
from modular_converter.settings.load import load_settings_of
from modular_converter.settings.values import Settings, modular_name, names_of_models


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


def write_modular_files(options: ModularizeOptions) -> int:
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
                for before, after in result.accepted.values() if options.diff else ():
                    print_diff(os.path.relpath(flat.folder), f"{before}\n", f"{after}\n", options.output_format)
        except ConversionError as error:
            findings += error.findings
            continue
        if result.proof is not None:
            index = index.with_modular(result.flat.modular, result.proof.conversion.requires)
        summaries.append(_modularized_values(result))
        if options.output_format == "text":
            click.echo(modularized_text(result), err=options.diff)
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


MOST_MODELS = 5
"""Models that the text names as the only parent."""


@without_collector()
def print_suggestions(model: str, package: str | None, root: str | None, output_format: str) -> int:
    """Print the suggestions for one argument, which may stand for several models, and return the exit code."""
    try:
        chosen = choose_models(() if model == "-" else (model,), package, root)
        library = Library(chosen.settings)
        if model == "-":
            flats: list[FlatModel] = [snippet(sys.stdin.read(), chosen.models, library)]
        else:
            flats = [read_flat_model(folder, name, library) for folder, name in chosen.named]
        with progress("reading the library"):
            index = read_index(chosen.models, library)
    except ConversionError as error:
        report(error.findings)
        return 2
    found = [suggest(flat, index, library) for flat in flats]
    if output_format == "json":
        models = list(map(_suggestion_values, found))
        click.echo(json.dumps({"schema": "modular-converter/suggest", "version": 1, "models": models}, indent=2))
    else:
        click.echo("\n".join(line for one in found for line in _suggestion_lines(one)))
    return 0 if any(one.chosen for one in found) else 1


def _suggestion_values(one: Suggestion) -> dict[str, object]:
    classes = []
    for name in one.classes:
        placed = one.chosen.get(name)
        entry: dict[str, object] = {"name": name, "lines": one.lines(name)}
        if placed:
            entry |= {
                "parent": f"{placed.source.dotted}.{placed.original}",
                "lines_left": placed.heir.text.count("\n"),
                "differences": list(placed.heir.notes),
            }
        classes.append(entry)
    return {"model": one.flat.model, "lines_saved_by_one_model": dict(one.saved), "classes": classes}


def _suggestion_lines(one: Suggestion) -> Iterator[str]:
    if not one.chosen:
        yield f"{one.flat.model}: no class of another model would save lines"
        return
    alone = ", ".join(f"{model} ({lines:,})" for model, lines in list(one.saved.items())[:MOST_MODELS])
    yield f"{one.flat.model}: lines saved by one model alone: {alone}"
    width = max(map(len, one.classes))
    for name in one.classes:
        placed = one.chosen.get(name)
        if placed is None:
            yield f"  {name:{width}} {one.lines(name):>5}         no parent saves lines"
            continue
        notes = ", ".join(placed.heir.notes) or "the same"
        left = placed.heir.text.count("\n")
        yield f"  {name:{width}} {one.lines(name):>5} -> {left:<4} {placed.original} of {placed.source.model}: {notes}"


def carry_edit(file: str, *, neighbour: bool, diff: bool) -> int:
    """Carry the edit of one file over, print the outcome, and return the exit code."""
    path = os.path.abspath(file)
    try:
        require_file(path)
        settings = load_settings_of([path])
        found = absorb(path, settings, to_neighbour=neighbour)
        library = Library(settings)
        for target, text in found.texts.items():
            print_diff(shown_path(target, os.getcwd()), library.text(target), text)
        if not diff:
            write_sources(found.texts, settings)
    except ConversionError as error:
        report(error.findings)
        return exit_code(error.findings, incomplete=True)
    shown = shown_path(path, os.getcwd())
    if found.reason:
        click.echo(f"{shown}: {found.reason}", err=True)
        for place in found.places:
            click.echo(f"  write it at {shown_path(place.path, os.getcwd())}:{place.first}, or override it", err=True)
        return 1
    if not found.texts:
        click.echo(f"{shown} is what its modular file gives: there is nothing to carry.", err=True)
    else:
        names = ", ".join(shown_path(one, os.getcwd()) for one in found.texts)
        click.echo(f"proven: {names} {'would give' if diff else 'gives'} {shown} as it is", err=True)
        report(found.warnings)
    return 0


def _modularized_values(result: Modularized) -> dict[str, Any]:
    """One model as values: its lines, parents, definitions, and the files that are not proven."""
    proof = result.proof
    return {
        "model": result.flat.model,
        "modular_file": result.flat.modular,
        "flat_lines": result.flat.lines,
        "lines_back": result.lines_back,
        "modular_lines": proof.lines if proof else None,
        "parents": parents_of(proof) if proof else {},
        "definitions": _definition_values(proof) if proof else [],
        "warnings": [f"{one.code} {one.message}" for one in proof.conversion.findings] if proof else [],
        "changes": _changes(result),
        "accepted": sorted(result.accepted),
        "left": {os.path.basename(path): reason for path, reason in result.left.items()},
    }


def parents_of(proof: Proof) -> dict[str, int]:
    """Model -> the number of classes that inherit from it, the largest number first."""
    draft = proof.draft
    heirs = (draft.placed[name].source.model for name, how in draft.how.items() if how is How.HEIR)
    return dict(sorted(Counter(heirs).items(), key=lambda one: (-one[1], one[0])))


def _definition_values(proof: Proof) -> list[dict[str, Any]]:
    draft = proof.draft
    found = []
    for name, how in draft.how.items():
        placed = draft.placed.get(name) if how is How.HEIR else None
        entry: dict[str, Any] = {"name": name, "how": how.value}
        if placed:
            entry |= {"parent": f"{placed.source.dotted}.{placed.original}", "differences": list(placed.heir.notes)}
        if how is How.IMPORTED:
            taken = draft.imports[name][0]
            entry["from"] = f"{taken.module}.{taken.name}"
        if name in proof.reasons:
            entry["reason"] = proof.reasons[name]
        found.append(entry)
    return found


def _changes(result: Modularized) -> list[str]:
    """The changes of the next conversion in the files of a model."""
    found = [change for one in result.proof.differences for change in changes_of(one)] if result.proof else []
    return found + [_unused(path, names) for path, names in result.unused.items()]


def _unused(path: str, names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names)
    return f"{os.path.basename(path)}: nothing uses {shown}, which {'goes' if len(names) == 1 else 'go'}"


def changes_of(difference: FileDifference) -> Iterator[str]:
    """The changes of a file written by hand when it is generated, in a few words each."""
    name = os.path.basename(difference.file.path)
    if not difference.bytes_differ:
        return
    if not difference.file.is_generated:
        yield f"{name}: a notice on top says that it is generated"
    if change := difference.rewritten or difference.moved:
        yield f"{name}: {change}"
    if difference.dropped:
        yield _unused(name, difference.dropped)
    if difference.idle:
        yield f"{name}: {', '.join(f'`{one}`' for one in difference.idle)} does nothing, and goes"
    if difference.guarded:
        yield f"{name}: imported under the condition of another file: {', '.join(f'`{one}`' for one in difference.guarded)}"
    if difference.origins:
        yield f"{name}: another comment on the origin of {', '.join(f'`{one}`' for one in difference.origins)}, or none"
    if difference.file.marks:
        yield f"{name}: {count(difference.file.marks, 'mark')} of copied code removed"
    if difference.file.has_docstring:
        yield f"{name}: the docstring of the module is removed"


def modularized_text(result: Modularized) -> str:
    """One model for people: a line, and one for each thing to know."""
    proof = result.proof
    if proof is None:
        lines = [f"{result.flat.model}: no modular file gives back any of its files"]
    else:
        parents = ", ".join(parents_of(proof)) or "no model"
        whole = f" of {result.flat.lines:,}" if result.left else ""
        lines = [
            f"{result.flat.model}: {result.lines_back:,}{whole} lines -> {proof.lines:,}, inherits from {parents}"
        ]
        if proof.conversion.findings:
            lines.append(f"  {count(len(proof.conversion.findings), 'warning')} when it is converted")
        lines += (f"  {change}" for change in _changes(result))
    if result.accepted:
        lines.append(f"  docstrings or comments become those of the parent: {', '.join(result.accepted)}")
    lines += (f"  {os.path.basename(path)} stays as it is: {reason}" for path, reason in result.left.items())
    return "\n".join(lines)
