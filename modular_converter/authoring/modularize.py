"""The smallest modular file of a flat model that a conversion proves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from modular_converter.authoring.choice import Placed, choose_parents, estimates, inherit_from
from modular_converter.authoring.draft import Draft, How, Import, definitions_of
from modular_converter.authoring.flat_model import FlatModel
from modular_converter.authoring.library_index import LibraryIndex
from modular_converter.authoring.normal_form import normal
from modular_converter.authoring.proof import Proof, prove_draft
from modular_converter.authoring.sources import SourceFile, find_sources
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Role
from modular_converter.settings.values import Settings


MOST_ORIGINS = 4
"""Places to import one function from that are tried."""


@dataclass(frozen=True)
class Modularized:
    """A flat model as a modular file."""

    flat: FlatModel
    proof: Proof | None
    """The modular file, proven for all files but those in `left`; None where no file comes back."""
    left: Mapping[str, str]
    """File that stays as it is -> why it does not come back."""


def modularize(flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str] = ()) -> Modularized:
    """Write a flat model as the smallest modular file that a conversion proves. Nothing is written to disk.

    Args:
        preferred: models that a person prefers as parents.

    Raises `ConversionError` where the formatter cannot be used.
    """
    left: dict[str, str] = {}
    rest = flat
    while rest.files:
        for proof in (_shortest(rest, index, library, preferred), written_out(rest, library.settings)):
            if proof.has_come_back:
                return Modularized(flat, proof, left)
        left.update(_in_the_way(proof, library.settings))
        rest = rest.without(left)
    return Modularized(flat, None, left)


def _shortest(flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str]) -> Proof:
    """The proof that starts with parents for as many classes as possible."""
    sources = find_sources(flat, index, library, preferred)
    year = index.years.get(flat.files[-1].path, 0)
    chosen = choose_parents(flat, estimates(flat, sources, library), preferred, year)
    placed = {
        name: sure
        for name, one in chosen.items()
        if (sure := inherit_from(flat.definitions[name][1], one.source, one.parent, flat, library)) is not None
    }
    return prove_draft(first_draft(flat, placed, sources), library.settings)


def written_out(flat: FlatModel, settings: Settings) -> Proof:
    """The proof of the modular file in which everything is written out."""
    return prove_draft(Draft(flat, dict.fromkeys(definitions_of(flat.files), How.WRITTEN), {}, {}), settings)


def _in_the_way(proof: Proof, settings: Settings) -> dict[str, str]:
    """The files that do not come back even when everything is written out, with the reasons."""
    found = {one.file.path: one.reason for one in proof.differences if not one.has_come_back}
    if not proof.conversion.failed and found:
        return found
    flat = proof.draft.flat
    if len(flat.files) == 1:
        errors = [one.message for one in proof.conversion.diagnostics if one.is_error]
        return {flat.files[0].path: errors[0] if errors else "it cannot be converted"}
    found = {}
    for file in flat.files:
        alone = written_out(flat.without([one.path for one in flat.files if one is not file]), settings)
        if not alone.has_come_back:
            found.update(_in_the_way(alone, settings))
    return found or {flat.files[0].path: "it cannot be converted together with the other files"}


def first_draft(flat: FlatModel, placed: dict[str, Placed], sources: list[SourceFile]) -> Draft:
    """The boldest draft: everything that may come along does."""
    used_sources = list({id(one.source): one.source for one in placed.values()}.values())
    how: dict[str, How] = {}
    imports: dict[str, tuple[Import, ...]] = {}
    for name in definitions_of(flat.files):
        statement = flat.definitions[name][1]
        if statement.role is Role.CLASS:
            how[name] = _how_of_class(name, flat, placed)
            continue
        givers = [one for one in used_sources if _gives(one, name, statement.text)]
        others = [one for one in sources if one not in givers and _gives(one, name, statement.text)]
        found = tuple(dict.fromkeys(Import(one.dotted, one.originals[name]) for one in (*givers, *others)))
        if found:
            imports[name] = found[:MOST_ORIGINS]
        is_shorter = bool(found) and statement.role is Role.FUNCTION
        how[name] = How.ALONG if givers else How.IMPORTED if is_shorter else How.WRITTEN
    return Draft(flat, how, placed, imports)


def _how_of_class(name: str, flat: FlatModel, placed: dict[str, Placed]) -> How:
    one = placed.get(name)
    if one is None:
        return How.WRITTEN
    users = (
        other
        for other, sure in placed.items()
        if other != name and sure.source.path == one.source.path and name in flat.definitions[other][1].uses
    )
    may_come = one.heir.says_nothing and one.parent == name and next(users, None) is not None
    return How.ALONG if may_come else How.HEIR


def _gives(source: SourceFile, name: str, text: str) -> bool:
    """Whether a source has a definition of the same name and text."""
    if name not in source.definitions or source.definitions.role(name) is Role.CLASS:
        return False
    return normal(source.definitions[name].text) == normal(text)
