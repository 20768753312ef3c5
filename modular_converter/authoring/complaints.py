"""The definitions of a draft to write in a longer form, since the conversion differs from the flat model."""

from __future__ import annotations

import os
from collections.abc import Iterator

from modular_converter.authoring.attempt import Proof
from modular_converter.authoring.comparison import FileDifference
from modular_converter.authoring.draft import How
from modular_converter.findings import Location
from modular_converter.model.index import index_module


def complaints(proof: Proof) -> Iterator[tuple[str, str]]:
    """The definitions to write in a longer form, with the reasons."""
    for finding in proof.conversion.findings:
        if finding.is_error:
            yield from ((name, finding.message) for name in _at_line(proof, finding.location))
    for difference in proof.differences:
        yield from ((name, "it did not come") for name in difference.missing)
        yield from ((name, "its text came back different") for name in difference.other)
        for name in difference.other:
            if proof.draft.how[name] is How.WRITTEN:  # the neighbour's was generated nevertheless
                yield from ((heir, f"with it came another {name}") for heir in _pullers(name, difference, proof))
        for key in difference.imports:
            if bound_by(key) in proof.draft.needed:  # so that the file's own import does not help
                yield from ((name, f"with it came another import of {key}") for name in _importers(key, proof))
    if any(one.missing or one.other for one in proof.differences):
        return  # superfluous definitions are often a consequence of these
    for difference in proof.differences:
        for name in difference.extra:
            heirs = [*_pullers(name, difference, proof)] or [*_heirs_beside(name, proof)]
            yield from ((heir, f"with it came {name}") for heir in heirs)


def _heirs_beside(name: str, proof: Proof) -> Iterator[str]:
    """The heirs of classes whose file also has a definition that is unused in the model."""
    for heir, placed in proof.draft.placed.items():
        if proof.draft.how[heir] is How.HEIR and name in placed.source.definitions:
            yield heir


def _at_line(proof: Proof, place: Location) -> Iterator[str]:
    """The definition of the modular file that a place belongs to."""
    line = place.line or 0
    if os.path.abspath(place.path) != proof.draft.flat.modular or not line:
        return
    module = proof.draft.flat.as_modular(proof.text).module
    above = [one for one in module.statements if one.line <= line and one.name in proof.draft.how]
    if above:
        yield above[-1].name


def _pullers(name: str, difference: FileDifference, proof: Proof) -> Iterator[str]:
    """The definitions that are not written out and whose generated form uses a superfluous one."""
    made = index_module(proof.texts.get(difference.file.path, ""), difference.file.path)
    how = proof.draft.how
    seen = {name}
    todo = [name]
    while todo:
        used = todo.pop()
        users = [one for one in made.definitions.values() if used in one.uses and one.name not in seen]
        seen.update(one.name for one in users)
        yield from (one.name for one in users if how.get(one.name) not in (None, How.WRITTEN))
        todo += (one.name for one in users if one.name not in how)


def _importers(key: str, proof: Proof) -> Iterator[str]:
    """The heirs whose parents' files import a name in another way than the flat files."""
    draft = proof.draft
    wanted = {name for file in draft.flat.files for one in file.module.statements for name in one.imports}
    for name, how in draft.how.items():
        if how in (How.HEIR, How.ALONG) and name in draft.placed:
            source = draft.placed[name].source
            given = (one for statement in source.definitions.module.statements for one in statement.imports)
            uses = source.definitions[draft.placed[name].parent].uses
            if any(one.key == key and one not in wanted and one.bound in uses for one in given):
                yield name


def bound_by(key: str) -> str:
    """The name that an import binds, by its key: `collections` of `collections.abc`."""
    return key.partition(".")[0]
