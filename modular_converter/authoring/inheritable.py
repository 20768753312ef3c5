"""The definitions of modular files that are written out although another model has them (MC325)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from modular_converter.authoring.flat_model import FlatModel
from modular_converter.authoring.library_index import IndexEntry, LibraryIndex, facts_of, read_index, year_of
from modular_converter.authoring.normal_form import Abstraction, normal
from modular_converter.authoring.sources import SourceFile, heirs_of, may_give, open_source
from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.silence import is_silenced, without_silenced
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError, Finding, Severity, locate_word
from modular_converter.model.module import Module, Role, Statement
from modular_converter.rules.base_classes import INHERITABLE_DEFINITION, inheritable_definition
from modular_converter.settings.layout import model_of_modular, models_folder_of
from modular_converter.settings.values import Settings


FEWEST_LINES = 3
"""The fewest lines of a definition for which an heir and its import are shorter."""
MOST_TWINS = 3
"""The most neighbours that are compared in detail for one definition, the oldest first."""


def find_inheritable(paths: Iterable[str], settings: Settings) -> list[Finding]:
    """The findings about some modular files, sorted, without those that their authors silence. A file that cannot be
    read has none: its conversion has reported the error.
    """
    library = Library(settings)
    indices: dict[str, LibraryIndex] = {}
    found: list[Finding] = []
    for path in paths:
        models = models_folder_of(path, settings)
        if models not in indices:
            indices[models] = read_index(models, library)
        try:
            some = sorted(_in_file(path, indices[models], library), key=lambda one: one.sort_key)
            some = without_silenced(some, path, library.text(path))
        except ConversionError:
            continue
        found += (one for one in some if one.rule is INHERITABLE_DEFINITION and not is_silenced(one, path, settings))
    return [one.with_severity(Severity.ERROR) for one in found] if settings.strict else found


def _in_file(path: str, index: LibraryIndex, library: Library) -> Iterator[Finding]:
    module, text = library.module(path), library.text(path)
    model = model_of_modular(path, library.settings)
    names = library.names(models_folder_of(path, library.settings)).with_written(model, module.classes)
    flat = FlatModel(path, model, names, (), library.settings)
    abstraction = Abstraction(module, model, names)
    forbidden = heirs_of(flat, index, library)
    year = year_of(module)
    for statement in _written_out(module, library.settings):
        whole = facts_of(statement.name, module, abstraction).whole
        twins = [index.entries[place] for place in index.places(whole)]
        twins = [
            one
            for one in twins
            if one.role == statement.role.value
            and index.years[one.path] <= year
            and may_give(one, flat, forbidden, library)
        ]
        twins.sort(key=lambda one: (index.years[one.path], -index.popularity[one.path], one.path))
        for twin in twins[:MOST_TWINS]:
            if (source := _same_source(statement, twin, flat, library)) is not None:
                place = locate_word(path, statement.name, text, statement.line)
                is_class = statement.role is Role.CLASS
                finding = inheritable_definition(place, statement.name, twin.name, source.dotted, is_class=is_class)
                yield finding.with_source(text)
                break


def _written_out(module: Module, settings: Settings) -> Iterator[Statement]:
    """The functions of a modular file, and the classes without a neighbour's class among their bases."""
    taken = {name for name, one in module.imported.items() if neighbour_module(one.module, settings) is not None}
    for statement in module.definitions.values():
        if statement.text.count("\n") + 1 < FEWEST_LINES:
            continue
        if statement.role is Role.FUNCTION or (statement.role is Role.CLASS and taken.isdisjoint(statement.bases)):
            yield statement


def _same_source(statement: Statement, twin: IndexEntry, flat: FlatModel, library: Library) -> SourceFile | None:
    """The twin's file, if the renamed twin has the text and name of the statement; else None."""
    source = open_source(twin.path, [(statement.name, twin.name)], flat, library)
    if source is None or source.originals.get(statement.name) != twin.name:
        return None
    return source if normal(source.definitions[statement.name].text) == normal(statement.text) else None
