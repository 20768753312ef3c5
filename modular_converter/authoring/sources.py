"""The files that a flat model could inherit from, each under the names that its definitions would have in the model; and
the definitions that a modular file writes out although a neighbour has them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.authoring.library_index import IndexEntry, LibraryIndex, facts_of, read_index, year_of
from modular_converter.authoring.normal_form import Abstraction, normal
from modular_converter.convert.inherit.rename_neighbours import asked_prefix, rename_neighbours
from modular_converter.convert.inherit.resolve import neighbour_module, resolve_imports
from modular_converter.convert.silence import is_silenced, without_silenced
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import RenamedModule
from modular_converter.findings import ConversionError, Finding, Severity, locate_word
from modular_converter.model.module import Module, Role, Statement
from modular_converter.rules.base_classes import INHERITABLE_DEFINITION, inheritable_definition
from modular_converter.settings.layout import dotted_name, model_of_modular, models_folder_of, modular_of
from modular_converter.settings.values import Settings


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
    forbidden = heirs_of(flat, index, library)
    found: list[SourceFile] = []
    for file in flat.files:
        scores = _scores(file, flat, index, library)
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


def heirs_of(flat: FlatModel, index: LibraryIndex, library: Library) -> frozenset[str]:
    """The modular files that take from this model, directly or not; to take from them would be a circle."""
    needs = {
        heir: {modular_of(path, library.settings) for path in files}
        for heir, files in index.needs.items()
        if heir != flat.modular
    }
    found = {flat.modular}
    while more := {heir for heir, needed in needs.items() if heir not in found and not found.isdisjoint(needed)}:
        found |= more
    return frozenset(found)


def files_in_circles(flat: FlatModel, index: LibraryIndex, library: Library) -> dict[str, str]:
    """The files that use what they import from an heir of their model, with the reason: a modular file must not import
    so.
    """
    heirs = heirs_of(flat, index, library) - {flat.modular}  # its own files may be imported like another model's
    found: dict[str, str] = {}
    for file in (one for one in flat.files if not one.is_generated):
        used = frozenset[str]().union(*(one.uses for one in file.module.statements if not one.imports))
        for name in (name for one in file.module.statements if one.role is Role.IMPORT for name in one.imports):
            is_neighbour = name.bound in used and neighbour_module(name.module, library.settings) is not None
            path = library.resolver.path(name.module, flat.folder) if is_neighbour else None
            if path and modular_of(path, library.settings) in heirs:
                found[file.path] = f"it imports {name.name} from {name.module}, whose model takes from this one"
    return found


def _scores(
    file: FlatFile, flat: FlatModel, index: LibraryIndex, library: Library
) -> dict[str, dict[IndexEntry, float]]:
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
