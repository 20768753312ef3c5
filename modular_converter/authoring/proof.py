"""Convert a draft, compare, and correct it until it gives the flat model: the proof of a modular file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from modular_converter.authoring.attempt import FileDifference, Proof, attempt, guarded_keys, plain_keys
from modular_converter.authoring.class_changes import other_layout
from modular_converter.authoring.draft import Draft, How, explicit, head_text, headers
from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.authoring.sources import Placed, inherit_from, is_worth_it
from modular_converter.convert.emit.format import format_files
from modular_converter.convert.source.library import Library
from modular_converter.findings import Location
from modular_converter.model.index import index_module
from modular_converter.model.module import ImportedName, Module, Role
from modular_converter.settings.values import Settings


MOST_TRIES = 8
"""The most changes that are tried one by one before they are combined."""
MOST_ROUNDS = 40
"""The most conversions of one draft; each makes at least one definition longer."""


Change = tuple[str, How, "ImportedName | None"]
"""A definition, its new form, and the place to import it from."""


def prove_draft(draft: Draft, library: Library) -> Proof:
    """Correct a draft round by round. The last attempt is returned, proven or not."""
    reasons: dict[str, str] = {}
    proof = attempt(draft, library, reasons)
    for _ in range(MOST_ROUNDS):
        if proof.round_trips:
            return _shortened([name for name in reasons if name in draft.imports], draft, proof, library)
        longer = _in_longer_form(proof, reasons, library)
        if longer is None:
            return _with_gaps(_in_order(proof, library), library)
        proof = attempt(longer, library, reasons)
    return proof


def _with_gaps(proof: Proof, library: Library) -> Proof:
    """The proof with the empty lines below the licence as in the generated files, if only these lines differ."""
    if proof.round_trips or proof.conversion.failed:
        return proof
    if any(not one.is_same_code or one.order for one in proof.differences):
        return proof
    tries = (
        attempt(draft, library, proof.reasons)
        for draft in with_blank_lines(proof.draft, proof.texts, library.settings)
    )
    return next((one for one in tries if one.round_trips), proof)


def _in_longer_form(proof: Proof, reasons: dict[str, str], library: Library) -> Draft | None:
    """The draft in which the definitions that differ have a longer form; None if nothing is left to try."""
    draft = proof.draft
    changes: dict[str, How] = {}
    placed = dict(draft.placed)
    needed: set[str] = set()
    for name, reason in complaints(proof):
        if draft.how.get(name) is How.HEIR and name not in changes and (other := _other_heir(name, proof, library)):
            placed[name] = other
            changes[name] = How.HEIR
        elif name not in changes and (longer := _longer(name, draft)) is not None:
            changes[name] = longer
            reasons[name] = reason
    others = {name: some[1:] if placed.get(name) in some[:1] else some for name, some in draft.others.items()}
    again = {name for name, how in changes.items() if how is draft.how[name] is How.IMPORTED}
    imports = {name: some[1:] if name in again else some for name, some in draft.imports.items()}
    draft = replace(draft, placed=placed, others=others, imports=imports)
    guarded: set[str] = set()
    if not changes:
        for difference in proof.differences:
            needed |= {name for name in map(bound_by, difference.imports) if name not in draft.needed}
            if not difference.file.is_generated:
                guarded |= {key for key in difference.imports if key in guarded_keys(difference.file.module)}
    if not changes and needed <= draft.needed and guarded <= draft.guarded:
        return None
    return replace(draft.with_how(changes), needed=draft.needed | needed, guarded=draft.guarded | guarded)


def _other_heir(name: str, proof: Proof, library: Library) -> Placed | None:
    """The next heir to try: of another parent, or with the parts that the parent has in another layout."""
    draft = proof.draft
    others = list(draft.others.get(name, ())[:1])
    exact = _exact_heir(name, proof, library)
    return min([*others, *([exact] if exact is not None else [])], key=lambda one: one.heir.lines, default=None)


def _exact_heir(name: str, proof: Proof, library: Library) -> Placed | None:
    """The heir with the parts that differ written in full; None if this changes or saves nothing."""
    flat, old = proof.draft.flat, proof.draft.placed[name]
    if proof.conversion.failed:  # its texts are not formatted
        return None
    made = next((one for difference in proof.differences if (one := _made(name, difference, proof))), "")
    wanted = flat.definitions[name][1]
    exact = old.heir.exact | (other_layout(wanted.text, made) if made else frozenset())
    if exact == old.heir.exact:
        return None
    heir = inherit_from(wanted, old.source, old.parent, flat, library, exact=exact)
    return heir if heir is not None and is_worth_it(heir, wanted, flat) else None


def _made(name: str, difference: FileDifference, proof: Proof) -> str:
    """The generated text of a definition that differs."""
    if name not in difference.other:
        return ""
    path = difference.file.path
    return index_module(proof.texts[path], path).definitions[name].text


def _longer(name: str, draft: Draft) -> How | None:
    """The next longer form of a definition, or an import from another place; None if it is already written out."""
    how = draft.how.get(name)
    if how is None or how is How.WRITTEN:
        return None
    if how is How.IMPORTED and len(draft.imports[name]) > 1:
        return How.IMPORTED
    return explicit(name, draft) if how is How.ALONG else How.WRITTEN


def _in_order(proof: Proof, library: Library) -> Proof:
    """Use longer forms until the order is right; then go back to the shorter form where possible. A change that puts
    more definitions into their places is kept at once. If no single change does, changes are combined.
    """
    start = proof.draft
    changed: list[str] = []
    for _ in range(MOST_ROUNDS):
        if proof.round_trips or not (changes := _order_changes(proof)):
            break
        tries = (_changed(proof, some, library) for some in changes[:MOST_TRIES])
        better = next((one for one in tries if _in_place(one) > _in_place(proof)), None)
        proof = better or _changed(proof, changes[0 if changes[0][0][1] is How.HEIR else -1], library)
        changed += (name for name in proof.draft.how if proof.draft.how[name] is not start.how[name])
    return _shortened(list(dict.fromkeys(changed)), start, proof, library) if proof.round_trips else proof


def _shortened(names: Sequence[str], start: Draft, proof: Proof, library: Library) -> Proof:
    """The proof with as many definitions as possible in the form of the first draft; a change may depend on another."""
    lines = proof.lines + 1
    while proof.lines < lines:
        lines = proof.lines
        for name in names:
            if proof.draft.how[name] is not start.how[name]:
                proof = _shortest(name, start, proof, library)
    return proof


def _shortest(name: str, start: Draft, proof: Proof, library: Library) -> Proof:
    """The proof with one definition in the form of the first draft, or imported from elsewhere, if that is proven, too."""
    ways = [proof.draft.with_how({name: start.how[name]})]
    if proof.draft.how[name] is How.WRITTEN:
        ways += (proof.draft.imported(name, taken) for taken in start.imports.get(name, ()))
    for draft in ways:
        other = attempt(draft, library, proof.reasons)
        if other.round_trips and other.lines < proof.lines:
            return other
    return proof


def _changed(proof: Proof, changes: Sequence[Change], library: Library) -> Proof:
    """The proof of a draft with some definitions in another form."""
    draft = proof.draft
    for name, how, taken in changes:
        draft = draft.imported(name, taken) if taken else draft.with_how({name: how})
    reasons = {**proof.reasons, **{name: "the order of the definitions" for name, _, _ in changes}}
    return attempt(draft, library, reasons)


def _in_place(proof: Proof) -> int:
    """The number of definitions in the right place, up to the first wrong one of each file, over all files."""
    if proof.conversion.failed or not all(one.is_same_code for one in proof.differences):
        return -1
    number = 0
    for difference in proof.differences:
        names = list(difference.file.module.definitions)
        number += names.index(difference.order[0]) if difference.order else len(names)
    return number


def _order_changes(proof: Proof) -> list[tuple[Change, ...]]:
    """The changes of definitions that may correct the order, the most promising first. Heirs cost few lines, so all of
    them together are tried before a definition is written out.
    """
    draft = proof.draft
    heirs: list[Change] = []
    longer: list[Change] = []
    for difference in proof.differences:
        if difference.order is None or not difference.file.is_generated:
            continue
        names = list(dict.fromkeys((*difference.order, *_between(difference))))
        heirs += ((name, How.HEIR, None) for name in names if _is_longer(name, How.HEIR, draft))
        for name in names:
            if draft.how[name] is not How.WRITTEN:
                first = 1 if draft.how[name] is How.IMPORTED else 0
                longer += ((name, How.IMPORTED, taken) for taken in draft.imports.get(name, ())[first:])
        longer += ((name, How.WRITTEN, None) for name in names if _is_longer(name, How.WRITTEN, draft))
    first_heirs = [tuple(heirs[:2]), tuple(heirs)] if len(heirs) > 2 else [tuple(heirs)] * (len(heirs) > 1)
    return [*((one,) for one in heirs[:2]), *first_heirs, *((one,) for one in (*heirs[2:], *longer))]


def _is_longer(name: str, how: How, draft: Draft) -> bool:
    """Whether a definition can have this longer form."""
    ways = list(How)
    possible = how is not How.HEIR or name in draft.placed
    return possible and ways.index(how) > ways.index(draft.how[name])


def _between(difference: FileDifference) -> Sequence[str]:
    """The definitions of the flat file from the first place that differs up to the one found there."""
    assert difference.order is not None
    names = list(difference.file.module.definitions)
    start, end = sorted(map(names.index, difference.order))
    return names[start : end + 1]


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
            # Else the heirs of classes whose file also has this definition, which is unused in the model.
            placed, how = proof.draft.placed.items(), proof.draft.how
            beside = [heir for heir, one in placed if how[heir] is How.HEIR and name in one.source.definitions]
            heirs = [*_pullers(name, difference, proof)] or beside
            yield from ((heir, f"with it came {name}") for heir in heirs)


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


MOST_IMPORTS = 3
"""The most further imports, or groups of them, that are added one after the other."""


def with_blank_lines(draft: Draft, generated: Mapping[str, str], settings: Settings) -> Iterator[Draft]:
    """The draft with another header and further imports, chosen for the empty lines below the licences. The first
    import of each group has an empty line above it, and carries it into the generated files that begin with this
    import. A further import in front takes over this line, and carries it into other files. Only the order of the
    imports is looked at: a conversion has to prove each draft.

    Args:
        generated: path -> what the draft converts to.
    """
    yield from _with_other_parents(draft, generated)
    yield from _with_conditions(draft, settings)
    (modular,) = _formatted([draft], settings)
    unseen: dict[str, tuple[str, int]] = {}
    for file in draft.flat.files:  # a neighbour's import may be the first, or an unused one that the formatter removes
        name, gap = _first_import(modular, file)
        unseen[file.path] = (name, gap_of(index_module(generated[file.path], file.path)) - gap)
    for believed in (unseen, dict.fromkeys(unseen, ("", 0))):  # with another header, the unseen import may be gone
        yield from _best_drafts(draft, believed, settings)
    for one in _with_conditions(draft, settings):
        yield from _best_drafts(one, unseen, settings)


def _with_other_parents(draft: Draft, generated: Mapping[str, str]) -> Iterator[Draft]:
    """The draft with parents from another file for the classes of a generated file whose lines differ.

    The conditional imports of a parent's file keep their distance in the generated file.
    """
    differing = {file.path for file in draft.flat.files if generated[file.path] != file.text}
    names = [name for name, (file, _) in draft.flat.definitions.items() if file.path in differing]
    heirs = [name for name in names if draft.how.get(name) is How.HEIR]
    for path in dict.fromkeys(one.source.path for name in heirs for one in draft.others.get(name, ())):
        placed = {
            name: next((one for one in draft.others.get(name, ()) if one.source.path == path), draft.placed[name])
            for name in heirs
        }
        yield replace(draft, placed={**draft.placed, **placed})


def _with_conditions(draft: Draft, settings: Settings) -> Iterator[Draft]:
    """The draft with a further conditional import of an optional library. The name of its test makes an import line of
    each generated file longer. If the formatter breaks the line and then removes the name as unused, the line stays
    broken, as in published files.
    """
    module, _, check = settings.availability_check.rpartition(".")
    plain = frozenset().union(*(plain_keys(file.module) for file in draft.flat.files))
    for library in (one for one in settings.optional_libraries if one in plain):
        test = check.replace("{library}", library)
        text = f"from ...{module} import {test}\n\n\nif {test}():\n    import {library}\n"
        yield replace(draft, condition=text)


def _best_drafts(draft: Draft, unseen: Mapping[str, tuple[str, int]], settings: Settings) -> Iterator[Draft]:
    """The draft with the header and the fewest imports that seem to suit all files; see `_fitting`."""
    best, most = draft, -1
    for number in range(MOST_IMPORTS + 1):
        groups = [frozenset[str]()] if number == 0 else _groups(best)
        places = range(len(headers(draft.flat)))
        tries = [replace(best, header=place, needed=best.needed | group) for place in places for group in groups]
        fitting = [_fitting(one, draft.flat, unseen) for one in _formatted(tries, settings)]
        if max(fitting, default=0) <= most:
            return
        most = max(fitting)
        best = tries[fitting.index(most)]
        if most == len(draft.flat.files):
            yield best
            return


def _groups(draft: Draft) -> list[frozenset[str]]:
    """The candidates for further imports: single names, the names of whole modules, and those of one file."""
    files = [[name for one in file.module.statements for name in one.imports] for file in draft.flat.files]
    names = [name for some in files for name in some]
    groups = [frozenset({name.bound}) for name in names]
    groups += [frozenset(name.bound for name in names if not name.name)]
    groups += [frozenset(name.bound for name in some) for some in files]
    return [group for group in dict.fromkeys(groups) if not group <= draft.needed]


def _formatted(drafts: Sequence[Draft], settings: Settings) -> list[Module]:
    """The header and the imports of each draft, formatted at once."""
    texts: dict[str, str] = {}
    for number, draft in enumerate(drafts):
        head = head_text(draft)
        names = sorted(index_module(head, draft.flat.modular).names)
        # The formatter removes imports that nothing uses.
        texts[f"{draft.flat.modular.removesuffix('.py')}_{number}.py"] = f"{head}\n\n_ = ({', '.join(names)},)\n"
    formatted = format_files(texts, settings).texts
    return [index_module(formatted[path], path) for path in texts]


def _fitting(modular: Module, flat: FlatModel, unseen: Mapping[str, tuple[str, int]]) -> int:
    """The number of generated files that will have the right number of empty lines below their licence.

    Args:
        unseen: for each file the first import in a draft, and the line breaks that a conversion added to its own.
    """
    number = 0
    for file in flat.files:
        name, gap = _first_import(modular, file)
        before, more = unseen[file.path]
        number += gap + (more if name == before else 0) == gap_of(file.module)
    return number


def _first_import(modular: Module, file: FlatFile) -> tuple[str, int]:
    """The first name that a modular file imports for one of its files, "" for none, and the line breaks above it."""
    wanted = {name.key for one in file.module.statements for name in one.imports}
    for statement in modular.statements:
        if statement.role is Role.IMPORT:
            for name in statement.imports:
                if name.key in wanted:
                    return name.key, _line_breaks(modular.header + statement.lead)
    return "", _line_breaks(modular.header)


def gap_of(module: Module) -> int:
    """The line breaks from the end of a module's header to its first statement."""
    lead = module.statements[0].lead if module.statements else ""
    return _line_breaks(module.header + lead)


def _line_breaks(text: str) -> int:
    return len(text) - len(text.rstrip("\n"))
