"""The work of `modular-convert absorb`: carry an edit over, or say where to write it."""

from __future__ import annotations

import os

import click

from modular_converter.authoring.absorb import Absorbed, absorb
from modular_converter.commands.output import print_diff, report
from modular_converter.convert.source.library import Library
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.read import in_form_of, root_of
from modular_converter.findings import ConversionError, Location, exit_code
from modular_converter.reporting.display import shown_path
from modular_converter.rules import input_files
from modular_converter.settings.load import load_settings_of


def run(file: str, *, neighbour: bool, diff: bool) -> int:
    """Carry the edit of one file over, print the outcome, and return the exit code."""
    path = os.path.abspath(file)
    try:
        if not os.path.isfile(path):
            raise ConversionError(input_files.missing_file(Location(os.path.relpath(path))))
        settings = load_settings_of([path])
        found = absorb(path, settings, to_neighbour=neighbour)
        library = Library(settings)
        for target, text in found.texts.items():
            print_diff(shown_path(target, os.getcwd()), library.text(target), text)
            if not diff:
                write_atomically(target, in_form_of(target, text), root_of(target, settings))
    except ConversionError as error:
        report(error.findings)
        return exit_code(error.findings, incomplete=True)
    return _told(path, found, diff=diff)


def _told(path: str, found: Absorbed, *, diff: bool) -> int:
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
    return 0
