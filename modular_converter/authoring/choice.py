"""The choice of parents for the classes of a flat model: estimates by lines saved, without a conversion, and the choice for
all classes together, which `suggest` shows.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from modular_converter.authoring.class_changes import Heir, ParentClass, heir_of
from modular_converter.authoring.flat_model import FlatFile, FlatModel, no_inherit_module
from modular_converter.authoring.library_index import LibraryIndex
from modular_converter.authoring.sources import SourceFile, find_sources
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE, ConversionError, locate_parse_error
from modular_converter.model.index import index_module
from modular_converter.model.module import Role, Statement
from modular_converter.rules import input_files
from modular_converter.settings.layout import folder_of_model, modular_name, module_name


IMPORT_LINES = 1.5
"""The cost of a further neighbour."""
NAME_LINES = 0.8
"""The cost of a further imported parent."""
YOUNGER_LINES = 5.0
"""The extra cost of a parent from a younger model."""
OTHER_PREFIX = 1000.0
"""The cost of a parent whose file is used under another prefix: a file has one prefix."""
LEAST_SHARE = 20
"""An heir of a model written by hand saves more than one line in so many."""
MOST_PARENTS = 6
"""The most sources that are compared in detail for one class."""


@dataclass(frozen=True)
class Placed:
    """A class of the model with the parent that it could have."""

    source: SourceFile
    parent: str
    """The parent's name in the target."""
    heir: Heir
    base: str
    """The parent's name in the modular file."""

    @property
    def original(self) -> str:
        """The parent's name in its own file."""
        return self.source.originals[self.parent]


def estimates(flat: FlatModel, sources: Sequence[SourceFile], library: Library) -> dict[str, list[Placed]]:
    """Class -> its possible parents, the cheapest of each source; estimated without a merge."""
    found: dict[str, list[Placed]] = {}
    for file in flat.files:
        for name, statement in file.module.definitions.items():
            if statement.role is Role.CLASS:
                found[name] = _estimates_of_class(statement, sources, flat, library)
    return found


def _estimates_of_class(
    statement: Statement, sources: Sequence[SourceFile], flat: FlatModel, library: Library
) -> list[Placed]:
    """The parents in the sources that share most with the class, and in those that share most with the whole model.

    Of the former only sources with a possible parent count: those that share most may have members in another order.
    """
    name = statement.name
    likely = sorted((one for one in sources if name in one.shared), key=lambda one: -one.shared[name])
    placed = (_cheapest(statement, one, flat, library) for one in likely)
    found = list(islice((one for one in placed if one is not None), MOST_PARENTS))
    known = {id(one.source) for one in found}
    alike = [one for one in sources if name in one.definitions][:MOST_PARENTS]
    others = (_cheapest(statement, one, flat, library) for one in alike if id(one) not in known)
    return [*found, *(one for one in others if one is not None)]


def _cheapest(statement: Statement, source: SourceFile, flat: FlatModel, library: Library) -> Placed | None:
    best: Placed | None = None
    for name in dict.fromkeys((statement.name, *source.likely.get(statement.name, ()))):
        if name in source.definitions and source.definitions.role(name) is Role.CLASS:
            placed = inherit_from(statement, source, name, flat, library, thorough=False)
            if placed is not None and (best is None or placed.heir.lines < best.heir.lines):
                best = placed
                if best.heir.says_nothing:  # none is shorter
                    break
    return best if best is not None and best.heir.lines < statement.text.count("\n") + 3 else None


def inherit_from(
    statement: Statement,
    source: SourceFile,
    parent: str,
    flat: FlatModel,
    library: Library,
    thorough: bool = True,
    exact: frozenset[str] = frozenset(),
) -> Placed | None:
    """A class as the heir of one class of a source; see `heir_of`."""
    text = source.definitions.text(parent)
    base = source.originals[parent]
    if base in flat.definitions:  # as `Attention`, which does not say its model
        base = f"{flat.model_names.cased(source.model)}{base}"
    given = ParentClass(text, parent, base, flat.no_inherit_module)
    heir = heir_of(statement.text, given, flat.model_names, library.settings, thorough, exact)
    return Placed(source, parent, heir, base) if heir is not None else None


def is_worth_it(one: Placed, statement: Statement, flat: FlatModel) -> bool:
    """Whether a class is shorter as an heir. In a model written by hand it has to save a line in twenty: nobody reads a
    parent's file to see that the child shares one statement with it.
    """
    lines = statement.text.count("\n") + 1
    return one.heir.lines < lines + 2 - (0 if flat.is_generated else lines // LEAST_SHARE)


def cost_of_heir(one: Placed, preferred: Collection[str], year: int) -> float:
    """The lines of an heir, reduced for a parent that a person prefers, increased for a parent from a younger model."""
    factor = 0.7 if one.source.model in preferred else 1.0
    return (one.heir.lines + NAME_LINES) * factor + (YOUNGER_LINES if one.source.year > year else 0.0)


def cheapest_first(
    some: Sequence[Placed], chosen: Mapping[str, Placed], preferred: Collection[str], year: int
) -> list[Placed]:
    """The possible parents of one class, sorted by their cost beside the choice for all classes."""
    prefixes = {one.source.path: one.source.prefix for one in chosen.values()}

    def cost(one: Placed) -> float:
        prefix = prefixes.get(one.source.path)
        new = IMPORT_LINES if prefix is None else 0.0 if prefix == one.source.prefix else OTHER_PREFIX
        return cost_of_heir(one, preferred, year) + new

    return sorted(some, key=cost)


def choose_parents(
    flat: FlatModel, estimated: Mapping[str, Sequence[Placed]], preferred: Collection[str], year: int
) -> dict[str, Placed]:
    """Class -> its parent, for the classes that are shorter with one.

    Sources are added as long as they save lines, the best first, and each class takes the cheapest parent in them.

    Args:
        preferred: models that a person prefers as parents.
        year: that of the model; younger models cost more.
    """
    full = {name: flat.definitions[name][1].text.count("\n") + 3.0 for name in estimated}
    used = frozenset().union(*(one.uses - {name} for name, (_, one) in flat.definitions.items()))
    by_source: dict[int, dict[str, Placed]] = {}
    sources: dict[int, SourceFile] = {}
    for name, some in estimated.items():
        for one in some:
            by_source.setdefault(id(one.source), {})[name] = one
            sources[id(one.source)] = one.source

    def cost(name: str, one: Placed) -> float:
        if one.heir.says_nothing and one.parent == name and name in used:
            return 0.3
        return cost_of_heir(one, preferred, year)

    current = dict(full)
    chosen: dict[str, Placed] = {}
    paths: set[str] = set()
    while True:
        gains = {
            key: sum(max(0.0, current[name] - cost(name, one)) for name, one in some.items()) - IMPORT_LINES
            for key, some in by_source.items()
            if sources[key].path not in paths
        }
        best = max(gains, key=lambda key: gains[key], default=None)
        if best is None or gains[best] <= 0:
            return chosen
        paths.add(sources[best].path)
        for name, one in by_source[best].items():
            if cost(name, one) < current[name]:
                current[name] = cost(name, one)
                chosen[name] = one


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
