"""The draft that a proof begins with: each definition in the shortest form that it can have."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.authoring.choice import Placed
from modular_converter.authoring.draft import Draft, How, Import, definitions_of
from modular_converter.authoring.flat_model import FlatModel
from modular_converter.authoring.sources import SourceFile, gives
from modular_converter.model.module import Role
from modular_converter.settings.kinds import module_name


MOST_ORIGINS = 4
"""The most places that are tried for the import of one function."""


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
            how[name] = how_of_class(name, flat, placed)
            continue
        if _comes_along_in_each_file(name, flat, used_sources):
            how[name] = How.ALONG
            imports[name] = (_from_own_file(name, flat),)
            continue
        givers = [one for one in used_sources if gives(one, name, statement)]
        further = [one for one in sources if one not in givers and gives(one, name, statement)]
        found = tuple(dict.fromkeys(Import(one.dotted, one.originals[name]) for one in (*givers, *further)))
        if found and (flat.is_generated or "__name__" not in statement.uses):  # not the logger of another file
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


def how_of_class(name: str, flat: FlatModel, placed: dict[str, Placed]) -> How:
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
