"""The files that a flat model could inherit from, each under the names that its definitions would have in the model; the
definitions that a modular file writes out although a neighbour has them; and the choice of parents for the classes of a
flat model: estimates by lines saved, without a conversion, and the choice for all classes together, which `suggest` shows.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from modular_converter.authoring.class_changes import Heir, ParentClass, heir_of
from modular_converter.authoring.flat_model import FlatFile, FlatModel, no_inherit_module
from modular_converter.authoring.library_index import (
    Abstraction,
    IndexEntry,
    LibraryIndex,
    facts_of,
    normal,
    read_index,
    year_of,
)
from modular_converter.convert.inherit.rename_neighbours import asked_prefix, rename_neighbours
from modular_converter.convert.inherit.resolve import neighbour_module, resolve_imports
from modular_converter.convert.schedule import heirs_of
from modular_converter.convert.silence import is_silenced, without_silenced
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import RenamedModule
from modular_converter.findings import UNPARSABLE, ConversionError, Finding, Severity, locate_parse_error, locate_word
from modular_converter.model.index import index_module
from modular_converter.model.module import Module, Role, Statement
from modular_converter.rules import input_files
from modular_converter.rules.base_classes import INHERITABLE_DEFINITION, inheritable_definition
from modular_converter.settings.values import (
    Settings,
    dotted_name,
    folder_of_model,
    model_of_modular,
    models_folder_of,
    modular_name,
    modular_of,
    module_name,
)


MOST_FILES = 10
"""The most files of one kind that are compared in detail."""
MOST_PREFIXES = 2
"""The most prefixes that are tried for each file."""
MOST_TWINS = 2
"""The most files that are searched for one function."""
PREFERENCE = 1.5
"""The weight of lines saved by a preferred parent, relative to other parents."""


@dataclass(frozen=True)
class SourceFile:
    """A neighbour's file under one prefix."""

    path: str
    dotted: str
    """Its module in the modular file: `..llama.modeling_llama`."""
    model: str
    prefix: str
    definitions: RenamedModule
    originals: Mapping[str, str]
    """Name in the target -> name in the file."""
    likely: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Class of the target -> the most similar classes of the file, by their names in the target."""
    year: int = 0
    """The year of the file's copyright notice."""
    shared: Mapping[str, float] = field(default_factory=dict)
    """Class of the target -> the lines that it shares with a class of the file, by the index."""


def find_sources(
    flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str] = ()
) -> list[SourceFile]:
    """The files that are most similar to a model, kind by kind.

    Args:
        preferred: models whose files a person prefers.
    """
    forbidden = heirs_of(flat.modular, index.needs, library.settings)  # to take from them would be a circle
    found: list[SourceFile] = []
    for file in flat.files:
        scores = _scores(file, flat, index)
        one_of_each = {entry.path: entry for some in scores.values() for entry in some}
        usable = {
            path
            for path, entry in one_of_each.items()
            if may_give(entry, flat, forbidden, library) and is_old_enough(entry, file, index, preferred)
        }
        scores = {
            name: {entry: score for entry, score in some.items() if entry.path in usable}
            for name, some in scores.items()
        }
        for path in _best_files(scores, index, preferred):
            found += (replace(one, year=index.years[path]) for one in _sources_at(path, scores, flat, library))
    return [*found, *_sources_of_functions(flat, found, index, forbidden, library, preferred)]


def _sources_of_functions(
    flat: FlatModel,
    known: Sequence[SourceFile],
    index: LibraryIndex,
    forbidden: frozenset[str],
    library: Library,
    preferred: Collection[str],
) -> list[SourceFile]:
    """Further files with functions of the model that no other source has in the same words. Files with most functions
    of the model come first, since functions often use each other; then the oldest.
    """
    lacking: list[str] = []
    have: dict[str, list[str]] = {}
    for file in flat.files:
        abstraction = Abstraction(file.module, flat.model, flat.model_names)
        for name, statement in file.module.definitions.items():
            if statement.role is not Role.FUNCTION:
                continue
            if not any(gives(one, name, statement) for one in known):
                lacking.append(name)
            for place in index.places(facts_of(name, file.module, abstraction).whole):
                twin = index.entries[place]
                is_twin = twin.role == Role.FUNCTION.value and twin.name == name
                if (
                    is_twin
                    and may_give(twin, flat, forbidden, library)
                    and is_old_enough(twin, file, index, preferred)
                ):
                    have.setdefault(twin.path, []).append(name)
    ranked = sorted(have, key=lambda path: (-len(have[path]), index.years[path], -index.popularity[path], path))
    paths = (path for name in lacking for path in [one for one in ranked if name in have[one]][:MOST_TWINS])
    opened = (open_source(path, (), flat, library) for path in dict.fromkeys(paths))
    return [source for source in opened if source is not None]


def gives(source: SourceFile, name: str, wanted: Statement) -> bool:
    """Whether a source has a definition of the same name, kind and text."""
    if name not in source.definitions:
        return False
    is_class = source.definitions.role(name) is Role.CLASS
    return is_class == (wanted.role is Role.CLASS) and normal(source.definitions.text(name)) == normal(wanted.text)


def files_in_circles(flat: FlatModel, index: LibraryIndex, library: Library) -> dict[str, str]:
    """The files that use what they import from an heir of their model, with the reason: a modular file must not import
    so.
    """
    heirs = heirs_of(flat.modular, index.needs, library.settings)
    heirs -= {flat.modular}  # its own files may be imported like another model's
    found: dict[str, str] = {}
    for file in (one for one in flat.files if not one.is_generated):
        used = frozenset[str]().union(*(one.uses for one in file.module.statements if not one.imports))
        for name in (name for one in file.module.statements if one.role is Role.IMPORT for name in one.imports):
            is_neighbour = name.bound in used and neighbour_module(name.module, library.settings) is not None
            path = library.resolver.path(name.module, flat.folder) if is_neighbour else None
            if path and modular_of(path, library.settings) in heirs:
                found[file.path] = f"it imports {name.name} from {name.module}, whose model takes from this one"
    return found


def _scores(file: FlatFile, flat: FlatModel, index: LibraryIndex) -> dict[str, dict[IndexEntry, float]]:
    """Class -> the library's classes that share parts with it, and the lines that they share."""
    abstraction = Abstraction(file.module, flat.model, flat.model_names)
    found: dict[str, dict[IndexEntry, float]] = {}
    for name, statement in file.module.definitions.items():
        if statement.role is not Role.CLASS:
            continue
        facts = facts_of(name, file.module, abstraction)
        shared: dict[int, float] = {}
        for part, length in (*facts.parts, (facts.whole, facts.lines)):
            for place in index.places(part):
                shared[place] = shared.get(place, 0.0) + length
        found[name] = {
            entry: score - 0.03 * max(0, entry.lines - score)
            for place, score in shared.items()
            if (entry := index.entries[place]).role == Role.CLASS.value and entry.kind == file.kind
        }
    return found


def may_give(entry: IndexEntry, flat: FlatModel, forbidden: frozenset[str], library: Library) -> bool:
    """Whether a definition may be taken from its file."""
    is_beside = os.path.dirname(entry.path) == flat.folder != flat.models_folder
    if is_beside or modular_of(entry.path, library.settings) in forbidden:
        return False
    return neighbour_module(dotted_name(entry.path, library.settings), library.settings) is not None


def is_old_enough(entry: IndexEntry, file: FlatFile, index: LibraryIndex, preferred: Collection[str]) -> bool:
    """Whether a file written by hand may inherit from a definition: from no younger model, unless a person says so, and
    from none that comes from the file's own model.

    Of two similar models the younger one then inherits from the older one, whichever is modularized first.
    """
    if file.is_generated or index.any_age or entry.model in preferred:
        return True
    year = index.years.get(file.path, 0)
    is_descendant = _folder_name(file.path) in index.ancestors.get(_folder_name(entry.path), ())
    return not is_descendant and (not year or index.years[entry.path] <= year)


def _folder_name(path: str) -> str:
    return os.path.basename(os.path.dirname(path))


def _best_files(
    scores: Mapping[str, Mapping[IndexEntry, float]], index: LibraryIndex, preferred: Collection[str]
) -> list[str]:
    """The files that share the most lines over all classes, and those most similar to one class."""
    totals: Counter[str] = Counter()
    alone: dict[str, None] = {}
    popular = index.popularity
    for some in scores.values():
        best: dict[str, float] = {}
        for entry, score in some.items():
            weight = PREFERENCE if entry.model in preferred else 1.0
            best[entry.path] = max(best.get(entry.path, 0.0), score * weight)
        totals.update(best)
        if best:
            alone[min(best, key=lambda path: (-round(best[path]), index.years[path], -popular[path], path))] = None
    ranked = sorted(totals, key=lambda path: (-totals[path], index.years[path], -popular[path], path))
    return list(dict.fromkeys((*ranked[:MOST_FILES], *alone)))[: 2 * MOST_FILES]


def _sources_at(
    path: str, scores: Mapping[str, Mapping[IndexEntry, float]], flat: FlatModel, library: Library
) -> list[SourceFile]:
    """A file under the prefixes that the pairs of similar classes ask for."""
    pairs: dict[str, list[str]] = {}
    wanted: Counter[str] = Counter()
    asking: dict[str, list[tuple[str, str]]] = {}
    shared: dict[str, float] = {}
    for name, some in scores.items():
        here = sorted(((-score, entry.name, entry.model) for entry, score in some.items() if entry.path == path))[:3]
        pairs[name] = [original for _, original, _ in here]
        if here:
            score, original, model = here[0]
            shared[name] = -score
            neighbour = flat.model_names.with_written(model, library.module(path).classes).cased(model)
            prefix = asked_prefix(name, original, flat.cased, neighbour) or flat.cased
            wanted[prefix] += int(-score) + 1
            asking.setdefault(prefix, []).append((name, original))
    found: list[SourceFile] = []
    for prefix, _ in wanted.most_common(MOST_PREFIXES):
        source = open_source(path, asking[prefix], flat, library, pairs)
        if source is not None and source.prefix not in {one.prefix for one in found}:
            found.append(replace(source, shared=shared))
    return found


def open_source(
    path: str,
    children: Sequence[tuple[str, str]],
    flat: FlatModel,
    library: Library,
    likely: Mapping[str, Sequence[str]] | None = None,
) -> SourceFile | None:
    """A file renamed for the heirs `children` of its classes; None if it cannot be imported from.

    Args:
        children: pairs of a class of the target and the class of the file.
        likely: class of the target -> names of classes in the file.
    """
    dotted = dotted_name(path, library.settings)
    parents = ", ".join(dict.fromkeys(parent for _, parent in children)) or "nothing"
    text = f"from {dotted} import {parents}\n" + "".join(f"class {one}({parent}): pass\n" for one, parent in children)
    try:
        renamed = rename_neighbours(resolve_imports(flat.as_modular(text), library), library).neighbours[dotted]
    except ConversionError:
        return None
    definitions = renamed.definitions
    new = {name: definitions.renamer.name(name) for name in definitions.module.definitions}
    similar = {name: [new[one] for one in some if one in new] for name, some in (likely or {}).items()}
    originals = {renamed: name for name, renamed in new.items()}
    return SourceFile(path, dotted, renamed.neighbour.model, renamed.prefix.cased, definitions, originals, similar)


FEWEST_LINES = 3
"""The fewest lines of a definition for which an heir and its import are shorter."""
MOST_NEIGHBOURS = 3
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
    forbidden = heirs_of(flat.modular, index.needs, library.settings)  # to take from them would be a circle
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
        for twin in twins[:MOST_NEIGHBOURS]:
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
