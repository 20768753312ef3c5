"""Find the smallest modular file of a flat model that a conversion proves."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.authoring.attempt import Proof
from modular_converter.authoring.choice import Placed, cheapest_first, choose_parents, estimates, inherit_from
from modular_converter.authoring.comparison import FileDifference
from modular_converter.authoring.draft import Draft, How, Import, definitions_of
from modular_converter.authoring.flat_model import FlatModel
from modular_converter.authoring.library_index import LibraryIndex
from modular_converter.authoring.proof import prove_draft
from modular_converter.authoring.relax import Parent, relax
from modular_converter.authoring.sources import SourceFile, find_sources, gives, open_source
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.source.index import index_module
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Role
from modular_converter.convert.workers import without_collector
from modular_converter.settings.kinds import module_name
from modular_converter.settings.values import Settings


MOST_OTHERS = 2
"""The most parents of one class that are tried."""
MOST_ORIGINS = 4
"""The most places that are tried for the import of one function."""


@dataclass(frozen=True)
class Modularized:
    """A flat model as a modular file."""

    flat: FlatModel
    proof: Proof | None
    """The modular file, proven for all files except those in `left`; None if it is proven for no file."""
    left: Mapping[str, str]
    """File that stays written by hand -> the reason."""
    accepted: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Class whose docstrings or comments become its parent's -> its text before and after."""

    @property
    def rewritten(self) -> Mapping[str, str]:
        """Generated file that the next conversion writes with the same code -> the difference, of order or layout."""
        return self.proof.rewritten if self.proof else {}


@without_collector()
def modularize(flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str] = ()) -> Modularized:
    """Write a flat model as the smallest modular file that a conversion proves. Nothing is written to disk.

    Args:
        preferred: models that a person prefers as parents.

    Raises `ConversionError` where the formatter cannot be used.
    """
    left: dict[str, str] = {}
    rest = flat
    while rest.files:
        short = _shortest(rest, index, library, preferred)
        if short.has_come_back:
            return Modularized(flat, short, left)
        partly = _with_failing_files_written_out(short, library)
        if partly.has_come_back:
            return Modularized(flat, partly, left)
        full = written_out(rest, library)
        if full.has_come_back:
            return Modularized(flat, full, left)
        if same := [one for one in (short, partly, full) if one.has_same_code]:
            return Modularized(flat, min(same, key=lambda one: one.lines), left)
        left.update(_in_the_way(max(short, partly, full, key=lambda one: one.lines_back), library))
        rest = rest.without(left)
    return Modularized(flat, None, left)


def modularize_allowing(
    flat: FlatModel,
    index: LibraryIndex,
    library: Library,
    preferred: Collection[str] = (),
    allowed: Collection[str] = (),
) -> Modularized:
    """The same, with docstrings and comments of parents in place of the model's own if that saves lines.

    Args:
        allowed: what may differ: `docstrings`, `comments`.
    """
    exact = modularize(flat, index, library, preferred)
    if not allowed or exact.proof is None:
        return exact
    parents = _likely_parents(flat, find_sources(flat, index, library, preferred))
    parents.update((name, (one.source, one.parent)) for name, one in exact.proof.draft.placed.items())
    relaxed = relax(flat, parents, allowed, library.names(flat.models_folder))
    if not relaxed.accepted:
        return exact
    other = modularize(relaxed.flat, index, library, preferred)
    if other.proof is None or other.left != exact.left or other.proof.lines >= exact.proof.lines:
        return exact
    return replace(other, flat=flat, accepted=relaxed.accepted)


def _likely_parents(flat: FlatModel, sources: Sequence[SourceFile]) -> dict[str, Parent]:
    """For each class the class that shares the most lines with it, by the index."""
    found: dict[str, Parent] = {}
    for name in definitions_of(flat.files):
        likely = [one for one in sources if one.likely.get(name)]
        if likely:
            best = max(likely, key=lambda one: one.shared.get(name, 0.0))
            found[name] = (best, best.likely[name][0])
    return found


def _shortest(flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str]) -> Proof:
    """The proof that starts with parents for as many classes as possible."""
    sources = find_sources(flat, index, library, preferred)
    year = index.years.get(flat.files[-1].path, 0)
    estimated = estimates(flat, sources, library)
    chosen = _settled(flat, choose_parents(flat, estimated, preferred, year), library)
    placed: dict[str, Placed] = {}
    others: dict[str, tuple[Placed, ...]] = {}
    for name, some in estimated.items():
        ranked = [chosen[name], *sorted(some, key=lambda one: one.heir.lines)] if name in chosen else []
        tried = _distinct(ranked)[: 1 + MOST_OTHERS]
        distinct = _distinct([one for one in map(_merged(name, flat, library), tried) if one is not None])
        if distinct:  # the estimates may have been too low
            placed[name], *rest = cheapest_first(distinct, chosen, preferred, year)
            others[name] = tuple(rest)
    return prove_draft(first_draft(flat, placed, others, sources), library)


def _distinct(some: Sequence[Placed]) -> list[Placed]:
    """The parents without duplicates: the same class under another renaming that gives the same text."""
    return list({(one.source.path, one.heir.text): one for one in reversed(some)}.values())[::-1]


def _merged(name: str, flat: FlatModel, library: Library) -> Callable[[Placed], Placed | None]:
    """A function that checks an estimate by merging the class with its parent."""
    statement = flat.definitions[name][1]
    return lambda one: inherit_from(statement, one.source, one.parent, flat, library)


def _settled(flat: FlatModel, chosen: Mapping[str, Placed], library: Library) -> dict[str, Placed]:
    """The choice with each source under the prefix that its heirs ask for together."""
    settled = dict(chosen)
    for path in dict.fromkeys(one.source.path for one in chosen.values()):
        heirs = {name: one for name, one in chosen.items() if one.source.path == path}
        voters = {name: one for name, one in heirs.items() if _how_of_class(name, flat, settled) is How.HEIR}
        source = open_source(path, [(name, one.original) for name, one in (voters or heirs).items()], flat, library)
        for name, one in heirs.items():
            if source is not None and source.prefix != one.source.prefix:
                parent = source.definitions.renamer.name(one.original)
                again = inherit_from(flat.definitions[name][1], source, parent, flat, library)
                if again is not None:
                    settled[name] = again
                else:
                    del settled[name]
    return settled


def _with_failing_files_written_out(proof: Proof, library: Library) -> Proof:
    """The proof in which the files that differ are written out, and the others stay as they are."""
    failing = [one.file for one in proof.differences if not one.has_come_back]
    changes = {name: How.WRITTEN for name in definitions_of(failing) if name in proof.draft.how}
    return prove_draft(proof.draft.with_how(changes), library)


def written_out(flat: FlatModel, library: Library) -> Proof:
    """The proof of the modular file in which everything is written out."""
    return prove_draft(Draft(flat, dict.fromkeys(definitions_of(flat.files), How.WRITTEN), {}, {}, {}), library)


def _in_the_way(proof: Proof, library: Library) -> dict[str, str]:
    """The files that differ even when everything is written out, with the reasons."""
    failing = [one for one in proof.differences if not one.has_come_back]
    if not proof.conversion.failed and failing:
        # The other differences may follow from definitions that one file lacks: `__all__` is one list for all files.
        lacking = [one for one in failing if one.missing or one.other or one.extra] or failing
        smaller = _smaller_file(lacking, proof, library)
        return smaller or {one.file.path: _reason(one, library.settings) for one in lacking}
    flat = proof.draft.flat
    if len(flat.files) == 1:
        errors = [one.message for one in proof.conversion.findings if one.is_error]
        return {flat.files[0].path: errors[0] if errors else "it cannot be converted"}
    found = {}
    for file in flat.files:
        alone = written_out(flat.without([one.path for one in flat.files if one is not file]), library)
        if not alone.has_come_back:
            found.update(_in_the_way(alone, library))
    return found or {flat.files[0].path: "it cannot be converted together with the other files"}


def _smaller_file(lacking: Sequence[FileDifference], proof: Proof, library: Library) -> dict[str, str]:
    """A file without which the others are proven, if it has fewer lines than the files that differ, with the reason.
    Two files may need contradictory definitions: `AutoConfig` from two modules, two classes of one name.
    """
    flat = proof.draft.flat
    names = {one.file.path for one in lacking}
    most = sum(one.file.text.count("\n") for one in lacking)
    others = [one for one in flat.files if one.path not in names and one.text.count("\n") < most]
    for file in sorted(others, key=lambda one: one.text.count("\n")):
        if written_out(flat.without([file.path]), library).has_come_back:
            with_it = ", ".join(f"{os.path.basename(one.file.path)} ({one.reason})" for one in lacking)
            return {file.path: f"with it these would not come back: {with_it}"}
    return {}


def _reason(difference: FileDifference, settings: Settings) -> str:
    """The reason why a file is not proven, with the definitions that its formatter would change."""
    file = difference.file
    if not (difference.other or file.is_generated):
        return difference.reason
    text = format_files({file.path: file.text}, settings).texts[file.path]
    if file.is_generated and difference.is_same_code and text != file.text:
        return f"{difference.reason}; the formatter changes them: format the file first"
    formatted, own = index_module(text, file.path).definitions, file.module.definitions
    changed = [name for name in difference.other if name in formatted and formatted[name].text != own[name].text]
    if not changed:
        return difference.reason
    return f"{difference.reason}; the formatter changes {', '.join(changed)}: format the file first"


def first_draft(
    flat: FlatModel,
    placed: dict[str, Placed],
    others: dict[str, tuple[Placed, ...]],
    sources: list[SourceFile],
) -> Draft:
    """The shortest draft: every definition that can be inherited or copied is."""
    used_sources = list({id(one.source): one.source for one in placed.values()}.values())
    how: dict[str, How] = {}
    imports: dict[str, tuple[Import, ...]] = {}
    for name in definitions_of(flat.files):
        statement = flat.definitions[name][1]
        if statement.role is Role.CLASS:
            how[name] = _how_of_class(name, flat, placed)
            continue
        if _comes_along_in_each_file(name, flat, used_sources):
            how[name] = How.ALONG
            imports[name] = (_from_own_file(name, flat),)
            continue
        givers = [one for one in used_sources if gives(one, name, statement)]
        further = [one for one in sources if one not in givers and gives(one, name, statement)]
        found = tuple(dict.fromkeys(Import(one.dotted, one.originals[name]) for one in (*givers, *further)))
        if found:
            imports[name] = found[:MOST_ORIGINS]
        is_shorter = bool(found) and statement.role is Role.FUNCTION
        how[name] = How.ALONG if givers else How.IMPORTED if is_shorter else How.WRITTEN
    return Draft(flat, how, placed, others, imports)


def _comes_along_in_each_file(name: str, flat: FlatModel, used_sources: Sequence[SourceFile]) -> bool:
    """Whether files of the model have a function or constant in several ways, and parents give each of them."""
    if len(flat.texts[name]) == 1:
        return False
    wanted = [one.module.definitions[name] for one in flat.files if name in one.module.definitions]
    return all(any(gives(one, name, statement) for one in used_sources) for statement in wanted)


def _from_own_file(name: str, flat: FlatModel) -> Import:
    """The import of a definition from the model's own generated file. A conversion drops it, so each generated file
    keeps the definition that its own parents give; linters of the modular file see the name.
    """
    file, _ = flat.definitions[name]
    return Import("." + module_name(file.kind, flat.model), name)


def _how_of_class(name: str, flat: FlatModel, placed: dict[str, Placed]) -> How:
    """The first form of a class. A class that no heir can give, such as one with attributes below methods, may be
    copied.
    """
    one = placed.get(name)
    users = [
        sure.source for other, sure in placed.items() if other != name and name in flat.definitions[other][1].uses
    ]
    tables = [  # `ATTENTION_CLASSES = {"sdpa": NewSdpaAttention}`
        (other, statement)
        for other, (_, statement) in flat.definitions.items()
        if statement.role is not Role.CLASS and name in statement.uses
    ]
    users += (sure.source for sure in placed.values() if any(gives(sure.source, *table) for table in tables))
    if one is None:
        statement = flat.definitions[name][1]
        return How.ALONG if any(gives(source, name, statement) for source in users) else How.WRITTEN
    may_come = one.heir.says_nothing and one.parent == name
    return How.ALONG if may_come and any(source.path == one.source.path for source in users) else How.HEIR
