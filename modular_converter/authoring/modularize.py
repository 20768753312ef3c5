"""The smallest modular file of a flat model that a conversion proves."""

from __future__ import annotations

from collections.abc import Collection

from modular_converter.authoring.choice import Placed, choose, estimates, place
from modular_converter.authoring.draft import Draft, How, Import, definitions_of
from modular_converter.authoring.flat_model import FlatModel
from modular_converter.authoring.library_index import LibraryIndex
from modular_converter.authoring.normal_form import normal
from modular_converter.authoring.proof import Proof, prove
from modular_converter.authoring.sources import Source, find_sources
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Role
from modular_converter.settings.values import Settings


def modularize(
    flat: FlatModel, index: LibraryIndex, library: Library, preferred: Collection[str] = ()
) -> Proof:
    """Write a flat model as a modular file, and prove it. Nothing is written to disk.

    Args:
        preferred: models that a person prefers as parents.

    Returns:
        The last state of the proof; whether it holds is `Proof.has_come_back`.
    """
    sources = find_sources(flat, index, library, preferred)
    chosen = choose(flat, estimates(flat, sources, library), preferred)
    placed = {
        name: sure
        for name, one in chosen.items()
        if (sure := place(flat.definitions[name][1], one.source, one.parent, flat, library)) is not None
    }
    return prove(first_draft(flat, placed, sources), library.settings)


def written_out(flat: FlatModel, settings: Settings) -> Proof:
    """The modular file in which everything is written out."""
    names = list(definitions_of(flat.files))
    return prove(Draft(flat, dict.fromkeys(names, How.WRITTEN), {}, {}), settings)


def first_draft(flat: FlatModel, placed: dict[str, Placed], sources: list[Source]) -> Draft:
    """The boldest draft: everything that may come along does."""
    used_sources = list({id(one.source): one.source for one in placed.values()}.values())
    how: dict[str, How] = {}
    imports: dict[str, Import] = {}
    for name in definitions_of(flat.files):
        statement = flat.definitions[name][1]
        if statement.role is Role.CLASS:
            how[name] = _how_of_class(name, flat, placed)
            continue
        givers = [one for one in used_sources if _gives(one, name, statement.text)]
        others = [one for one in sources if _gives(one, name, statement.text)]
        how[name] = How.ALONG if givers else How.WRITTEN
        for one in (*givers, *others)[:1]:
            imports[name] = Import(one.dotted, one.originals[name])
            if not givers and statement.role is Role.FUNCTION:
                how[name] = How.IMPORTED
    return Draft(flat, how, placed, imports)


def _how_of_class(name: str, flat: FlatModel, placed: dict[str, Placed]) -> How:
    one = placed.get(name)
    if one is None:
        return How.WRITTEN
    users = (
        other
        for other, sure in placed.items()
        if other != name
        and sure.source.path == one.source.path
        and name in flat.definitions[other][1].uses
    )
    may_come = one.heir.says_nothing and one.parent == name and next(users, None) is not None
    return How.ALONG if may_come else How.HEIR


def _gives(source: Source, name: str, text: str) -> bool:
    """Whether a source has a definition of the same name and text."""
    if name not in source.definitions or source.definitions.role(name) is Role.CLASS:
        return False
    return normal(source.definitions[name].text) == normal(text)
