"""The work of `modular-convert new`: write the first files of a model, show its entries in tables, and name what is left."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modular_converter.authoring.new_model import (
    NewModel,
    ParentModel,
    Table,
    names_made_by_renaming,
    new_model,
    read_parent,
    table_entries,
    title,
)
from modular_converter.commands.output import print_diff, report
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import required_models_folder
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.read import is_installed
from modular_converter.findings import ConversionError, Location
from modular_converter.reporting.display import message
from modular_converter.rules import input_files
from modular_converter.settings.layout import folder_of_model, place_of_model
from modular_converter.settings.load import load_settings
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class NewOptions:
    """The options of the command line."""

    model: str
    parents: Sequence[str]
    cased: str | None = None
    root: str | None = None
    dry_run: bool = False
    tables: bool = False


def run(options: NewOptions) -> int:
    """Write the files of a new model, and return the exit code."""
    try:
        models = required_models_folder(None, options.root)
        if is_installed(models):
            raise ConversionError(input_files.installed(Location(models)))
        library = Library(load_settings(models))
        _refuse_existing(models, options.model, library.settings)
        parents = [read_parent(name, models, library) for name in options.parents]
        new = new_model(options.model, options.cased or title(options.model), parents, models, library)
        tables = [*table_entries(models, new.renamer, new.types, new.classes, library)]
        _place(new, tables, models, options)
    except ConversionError as error:
        report(error.findings)
        return 2
    report(new.conversion.findings)
    print("\nleft to you:", *_left(new, parents, tables, library, options), sep="\n  ", file=sys.stderr)
    return 0


def _refuse_existing(models: str, model: str, settings: Settings) -> None:
    """Raise `ConversionError` for a model that has Python files."""
    folder = folder_of_model(models, model, settings)
    names = os.listdir(folder) if os.path.isdir(folder) else ()
    found = [os.path.join(folder, name) for name in names if name.endswith(".py")]
    place = os.path.join(models, model)
    if found and (folder != models or place in {place_of_model(path, settings) for path in found}):
        raise ConversionError(input_files.model_exists(Location(place)))


def _place(new: NewModel, tables: Sequence[Table], models: str, options: NewOptions) -> None:
    """Write the files of the model, or show them; write its entries in tables that a program writes anyway, and in others
    where asked to, else show them.
    """
    folder = os.path.dirname(new.modular)
    files = {new.modular: new.text, **new.conversion.files, **new.copies}
    if new.init is not None:
        files[os.path.join(folder, "__init__.py")] = new.init
    for path, text in files.items():
        if options.dry_run:
            if path not in new.conversion.files:
                print_diff(os.path.relpath(path), None, text)
            continue
        write_atomically(path, text, models)
        print(f"wrote {message(os.path.relpath(path))}", file=sys.stderr)
    for table in tables:
        if (table.is_generated or options.tables) and not options.dry_run:
            write_atomically(table.path, table.new, models)
            print(f"wrote {message(os.path.relpath(table.path))}", file=sys.stderr)
        else:
            print_diff(os.path.relpath(table.path), table.old, table.new)


def _left(
    new: NewModel, parents: Sequence[ParentModel], tables: Sequence[Table], library: Library, options: NewOptions
) -> Iterator[str]:
    """What is left to do, a line each."""
    shown = [message(os.path.relpath(one.path)) for one in tables if not one.is_generated]
    if shown and not options.tables:
        yield f"apply the diff above to {', '.join(shown)}, which people write (--tables does it)"
    is_alone = parents[0].folder != os.path.dirname(new.modular)
    if new.init is None and is_alone and os.path.exists(os.path.join(parents[0].folder, "__init__.py")):
        yield f"__init__.py: that of {parents[0].model} cannot be followed"
    for path in new.copies:
        yield f"{message(os.path.basename(path))}: the parent's under new names; no conversion writes it"
    for other in parents[1:]:
        yield f"tables: none has an entry for the classes from {other.model}; remove those classes that you do not need"
    yield from (message(one) for one in names_made_by_renaming(new))
    names = {"{model}": options.model, "{Model}": new.renamer.new_cased}
    for text in library.settings.left_after_converting:
        for placeholder, name in names.items():
            text = text.replace(placeholder, name)
        yield message(text)
