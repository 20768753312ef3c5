"""The empty lines below the licence of generated files, which the imports of the modular file decide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from modular_converter.authoring.comparison import plain_keys
from modular_converter.authoring.draft import Draft, How, head_text, headers
from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.convert.emit.format import format_files
from modular_converter.model.index import index_module
from modular_converter.model.module import Module, Role
from modular_converter.settings.values import Settings


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
