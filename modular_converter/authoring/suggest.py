"""The models that a flat model could inherit from: an estimate by lines saved, without a conversion."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modular_converter.authoring.choice import Placed, choose_parents, estimates
from modular_converter.authoring.flat_model import FlatFile, FlatModel, no_inherit_module
from modular_converter.authoring.library_index import LibraryIndex
from modular_converter.authoring.sources import find_sources
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE, ConversionError, locate_parse_error
from modular_converter.model.index import index_module
from modular_converter.model.module import Role
from modular_converter.rules import input_files
from modular_converter.settings.layout import folder_of_model, modular_name, module_name


SNIPPET = "snippet"
"""The name of the model for a snippet."""


@dataclass(frozen=True)
class Suggestion:
    """The parents that the classes of a model could have."""

    flat: FlatModel
    chosen: Mapping[str, Placed]
    """Class -> its parent in the choice for all classes together."""
    saved: Mapping[str, int]
    """Model -> the lines that it would save as the only source, the largest number first, then the oldest model."""

    def lines(self, name: str) -> int:
        """The lines of a class in the flat file."""
        return self.flat.definitions[name][1].text.count("\n") + 1

    @property
    def classes(self) -> list[str]:
        """All classes in the order of the files."""
        return [name for name, (_, one) in self.flat.definitions.items() if one.role is Role.CLASS]


def suggest(flat: FlatModel, index: LibraryIndex, library: Library) -> Suggestion:
    """Look for parents of a model's classes."""
    estimated = estimates(flat, find_sources(flat, index, library), library)
    chosen = choose_parents(flat, estimated, (), index.years.get(flat.files[-1].path, 9999))
    return Suggestion(flat, chosen, _saved(flat, estimated))


def _saved(flat: FlatModel, estimated: Mapping[str, Sequence[Placed]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    years = {one.source.model: one.source.year for some in estimated.values() for one in some}
    for name, some in estimated.items():
        full = flat.definitions[name][1].text.count("\n") + 3
        best: dict[str, int] = {}
        for one in some:
            best[one.source.model] = max(best.get(one.source.model, 0), full - one.heir.lines)
        for model, lines in best.items():
            totals[model] = totals.get(model, 0) + lines
    return dict(sorted(((m, n) for m, n in totals.items() if n > 0), key=lambda one: (-one[1], years[one[0]], one[0])))


def snippet(text: str, models: str, library: Library) -> FlatModel:
    """A model of which only some classes are known. Its name is the common beginning of their names.

    Raises `ConversionError` for a text that is not Python.
    """
    kind = library.settings.default_kind
    folder = folder_of_model(models, SNIPPET, library.settings)
    path = os.path.join(folder, f"{module_name(kind, SNIPPET)}.py")
    try:
        module = index_module(text, path)
    except UNPARSABLE as error:
        raise ConversionError(input_files.syntax_error(*locate_parse_error("<stdin>", error))) from None
    names = [one.name for one in module.definitions.values() if one.role is Role.CLASS]
    common = os.path.commonprefix(names)
    if len(names) == 1 or not common:
        common = next((name[:end] for name in names for end in range(1, len(name)) if name[end].isupper()), "Snippet")
    file = FlatFile(kind, path, text, module, False)
    modular = os.path.join(folder, modular_name(SNIPPET, library.settings))
    model_names = replace(library.names(models), written={SNIPPET: common})
    return FlatModel(modular, SNIPPET, model_names, (file,), library.settings, no_inherit_module(models, library))
