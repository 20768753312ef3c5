"""An edit of a generated file, carried to the file that its lines come from. A conversion proves each proposal."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from modular_converter.authoring.class_changes import (
    ParentClass,
    heir_of,
    members_by_key,
    parsed_class,
    removal_of,
    written_member,
)
from modular_converter.authoring.draft import import_line
from modular_converter.authoring.fixes import converted
from modular_converter.authoring.flat_model import no_inherit_module
from modular_converter.check.blame import CommitHistory
from modular_converter.check.compare import StaleFile
from modular_converter.convert.inherit.build import BuiltClass, rename_class
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.collect import GeneratedFile
from modular_converter.convert.pipeline import first_steps
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import Renamer
from modular_converter.files.write import is_generated
from modular_converter.findings import (
    UNPARSABLE,
    Conversion,
    ConversionError,
    Finding,
    Location,
    character_column,
    locate_parse_error,
)
from modular_converter.model import lexer
from modular_converter.model.class_blocks import ClassBlock, block_lines
from modular_converter.model.index import index_module
from modular_converter.model.module import ImportedName, Module, Role, Statement
from modular_converter.model.nodes import parse
from modular_converter.model.overriding import NO_DECORATORS
from modular_converter.provenance.generated import LineRange, LineSource, line_sources
from modular_converter.reporting.diffs import differing_parts
from modular_converter.rules import input_files
from modular_converter.settings.values import Settings, models_folder_of, modular_of


_GAP = re.compile(r"\A((?:@.*\n)*class .*:\n)\n+")


class Rewritten(NamedTuple):
    """One definition of the modular file in a new form."""

    text: str
    """With the lines above it."""
    imports: tuple[ImportedName, ...] = ()
    """What it needs that the modular file does not import."""


class _Edit(NamedTuple):
    start: int
    """The lines of the modular file that are replaced, from 0 and exclusive; none for an insertion."""
    end: int
    forms: tuple[Rewritten, ...]


def overriding_texts(path: str, modular: str, made: Mapping[str, str], wanted: str, library: Library) -> Iterator[str]:
    """Texts of a modular file that may give an edited file, the shortest changes first. They are proposals: a conversion
    has to prove them.

    Args:
        made: the texts of the generated files as a conversion gives them, by path.
        wanted: its edited text, which is Python.

    Raises `ConversionError` where a text cannot be read.
    """
    before, after = index_module(made[path], path), index_module(wanted, path)
    finished = first_steps(modular, made.values(), library)
    (file,) = (one for one in finished.files if one.name == os.path.basename(path))
    writer = _Writer(finished.neighbours, finished.classes, file, library, before)
    edits = [
        writer.edit(one)
        for name, one in after.definitions.items()
        if (was := before.definitions.get(name)) is None or (was.lead, was.text) != (one.lead, one.text)
    ]
    if not all(one.forms for one in edits):
        return
    known = {one for statement in before.statements for one in statement.imports}
    plain = (statement for statement in after.statements if statement.role is Role.IMPORT)
    new = [one for statement in plain for one in statement.imports if one not in known]
    for forms in itertools.product(*(one.forms for one in edits)):
        needed = [] if new else writer.unknown_imports(forms, after)
        for imports in (needed, []) if needed else (new,):
            yield writer.text(edits, forms, imports)


@dataclass(frozen=True)
class _Writer:
    """Writes definitions of one generated file into the modular file."""

    neighbours: Neighbourhood
    classes: Mapping[str, BuiltClass]
    file: GeneratedFile
    library: Library
    before: Module

    @property
    def own(self) -> Module:
        """The modular file."""
        return self.neighbours.target.module

    @cached_property
    def _no_inherit_module(self) -> str:
        return no_inherit_module(models_folder_of(self.own.path, self.library.settings), self.library)

    def edit(self, wanted: Statement) -> _Edit:
        """The forms that a definition may have in the modular file, and where it stands."""
        statement, built = self.own.definitions.get(wanted.name), self.classes.get(wanted.name)
        if statement is None:
            line = self._place(wanted.name)
            return _Edit(line, line, tuple(self._copied(wanted)))
        end = _end(statement)
        if built is not None and built.parent is not None:
            forms = tuple(self._inherited(statement, built.parent, wanted))
            return _Edit(statement.line - 1, end, forms)
        return _Edit(_start(statement), end, (Rewritten(wanted.lead + wanted.text),))

    def _place(self, name: str) -> int:
        """The line before which a definition is inserted: that of the first one that stands behind it now."""
        behind = itertools.dropwhile(lambda one: one != name, self.before.definitions)
        found = (self.own.definitions[one] for one in behind if one in self.own.definitions)
        first = next(found, None)
        return len(self.library.text(self.own.path).split("\n")) - 1 if first is None else _start(first)

    def _copied(self, wanted: Statement) -> Iterator[Rewritten]:
        """The forms of a definition that a conversion copies from a neighbour, or that is new."""
        emitted = self.file.definitions.get(wanted.name)
        dotted = self.neighbours.at_path.get(emitted.origin.path, "") if emitted is not None else ""
        made = self.before.definitions.get(wanted.name)
        if wanted.role is Role.CLASS and dotted and made is not None:
            original = self.neighbours.neighbours[dotted].definitions.original(wanted.name).name
            parent = ParentClass(made.text, wanted.name, original, self._no_inherit_module)
            names = self.neighbours.target.names
            heir = heir_of(wanted.text, parent, names, self.library.settings) if original != wanted.name else None
            if heir is not None:
                taken = ImportedName(dotted, original)
                needed = () if self.own.imported.get(original) == taken else (taken,)
                yield Rewritten("\n\n" + _closed_up(heir.text), needed)
        yield Rewritten(wanted.lead + wanted.text)

    def _inherited(self, statement: Statement, parent: Statement, wanted: Statement) -> Iterator[Rewritten]:
        """The forms of a class that inherits: with the members that differ, or made anew."""
        names = self.neighbours.target.names
        above = parent.text
        if parent.name != wanted.name:
            above = rename_class(above, parent.name, wanted.name, names)
        base, can_drop = self.neighbours.parent_of(statement), bool(self._no_inherit_module)
        try:
            blocks = [
                parsed_class(one)
                for one in (statement.text, above, self.before.definitions[wanted.name].text, wanted.text)
            ]
            found = [_with_members(statement.text, *blocks, by_super=one, can_drop=can_drop) for one in (True, False)]
        except UNPARSABLE:
            found = []
        if base is not None:
            inherited = ParentClass(above, wanted.name, base[0], self._no_inherit_module)
            heir = heir_of(wanted.text, inherited, names, self.library.settings)
            found.append(_closed_up(heir.text) if heir is not None else None)
        yield from dict.fromkeys(Rewritten(one) for one in found if one)

    def unknown_imports(self, forms: Iterable[Rewritten], after: Module) -> list[ImportedName]:
        """The imports of the generated file that texts use, and that the modular file lacks."""
        used = frozenset[str]().union(*(lexer.identifiers(one.text) for one in forms))
        known = self.own.imported.keys() | self.own.definitions.keys()
        plain = (one for statement in after.statements if statement.role is Role.IMPORT for one in statement.imports)
        return [one for one in plain if one.bound in used - known]

    def text(self, edits: Iterable[_Edit], forms: Iterable[Rewritten], imports: Iterable[ImportedName]) -> str:
        """The modular file with definitions in a new form."""
        lines = self.library.text(self.own.path).split("\n")
        placed: list[tuple[int, int, str]] = []
        added = [*imports]
        for edit, form in zip(edits, forms):
            placed.append((edit.start, edit.end, form.text))
            added += form.imports
            if f"@{NO_DECORATORS}" in form.text and NO_DECORATORS not in self.own.imported:
                added.append(ImportedName(self._no_inherit_module, NO_DECORATORS))
        placed += self._imports(dict.fromkeys(added), lines)
        for start, end, text in sorted(placed, key=lambda one: one[:2], reverse=True):
            lines[start:end] = text.split("\n")
        return "\n".join(lines)

    def _imports(self, names: Iterable[ImportedName], lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """The lines in whose place imports of further names stand: in the statement that imports from their module, else
        below all imports.
        """
        statements = [one for one in self.own.statements if one.role is Role.IMPORT]
        known = {one.imports[0].module: one for one in reversed(statements) if _is_plain(one, lines)}
        wider: dict[str, str] = {}
        for name in names:
            key = name.module if name.name else import_line(name)
            text = wider.get(key) or (known[key].text if key in known else "")
            wider[key] = _with_name(text, import_line(name)) if text else import_line(name)
        last = max(map(_end, statements), default=0)
        if new := [text for key, text in wider.items() if key not in known]:
            yield last, last, "\n".join(new)
        yield from ((known[key].line - 1, _end(known[key]), text) for key, text in wider.items() if key in known)


def _is_plain(statement: Statement, lines: Sequence[str]) -> bool:
    """Whether this is `from module import names` as the modular file has it."""
    is_same = "\n".join(lines[statement.line - 1 : _end(statement)]) == statement.text
    return is_same and statement.text.startswith("from ") and all(one.name != "*" for one in statement.imports)


def _with_name(text: str, line: str) -> str:
    """The statement `from module import …` of a text with the name of another one behind its own."""
    (node,) = parse(text).body
    assert isinstance(node, ast.ImportFrom)
    last, lines = node.names[-1], text.split("\n")
    row = lines[last.lineno - 1]
    start, end = (character_column(row, one or 0) for one in (last.col_offset, last.end_col_offset))
    between = ", " if row[:start].strip() else f",\n{row[:start]}"
    lines[last.lineno - 1] = row[:end] + between + line.partition(" import ")[2] + row[end:]
    return "\n".join(lines)


def _start(statement: Statement) -> int:
    return statement.line - 1 - statement.lead.count("\n")


def _end(statement: Statement) -> int:
    return statement.line + statement.text.count("\n")


def _with_members(
    text: str,
    own: ClassBlock,
    parent: ClassBlock,
    before: ClassBlock,
    after: ClassBlock,
    *,
    by_super: bool,
    can_drop: bool,
) -> str | None:
    """The class of the modular file with the members that the edit changes, adds or removes; None where the edit is
    elsewhere in the class, or a member cannot be written so.

    Args:
        text: the class of the modular file.
        own: the same, taken apart.
        parent: its parent under its name.
        before: the class as it is generated.
        after: the same, edited.
        by_super: whether an override may take lines of the parent's by `super()`.
        can_drop: whether an override may drop the parent's decorators.
    """
    head = "".join(block_lines(text)[1][: own.body_line - 1])
    is_whole = head + own.docstring + "".join(one.render() for one in own.members) == text.rstrip("\n") + "\n"
    if not is_whole or after.bases != before.bases or ast.dump(_header(after)) != ast.dump(_header(before)):
        return None
    mine, theirs, was = (members_by_key(one.members) for one in (own, parent, before))
    now = members_by_key(after.members)
    written: dict[str, str] = {key: one.render() for key, one in mine.items()}
    for key, member in now.items():
        if key in was and was[key].render() == member.render():
            continue
        place = theirs.get(key)
        new = written_member(member, place, by_super, after.bases, can_drop)
        if new is None:
            return None
        lead = mine[key].lead if key in mine and place is not None and member.is_function else ""
        written[key] = lead + new.removeprefix("\n") if lead else new
    for key in was.keys() - now.keys():
        written.pop(key, None)
        if key in theirs:
            removal = removal_of(key, theirs[key], own.node.name)
            if removal is None:
                return None
            written[key] = removal
    docstring = own.docstring if after.docstring == before.docstring else after.docstring
    attributes = [one for key, one in written.items() if not _is_method(key)]
    methods = [one for key, one in written.items() if _is_method(key)]
    return _closed_up(head + docstring + ("".join([*attributes, *methods]) or "    pass\n"))


def _closed_up(text: str) -> str:
    """A class without an empty line below its header."""
    return _GAP.sub(r"\1", text.rstrip("\n"))


def _is_method(key: str) -> bool:
    return key.startswith("def ")


def _header(block: ClassBlock) -> ast.ClassDef:
    """A class without its body."""
    return ast.ClassDef(block.node.name, block.node.bases, block.node.keywords, [], block.node.decorator_list)


MOST_TRIALS = 12
"""Conversions that are tried: an inserted line may belong to the line above or below."""


class Hunk(NamedTuple):
    """Lines of the converted text, from 0 and exclusive, and the lines that the edit has in their place."""

    start: int
    end: int
    lines: tuple[str, ...]


class Absorbed(NamedTuple):
    """The outcome for one file."""

    texts: Mapping[str, str]
    """Path -> its new text; empty where nothing is proven."""
    places: Sequence[LineRange] = ()
    """Where to write what could not be carried."""
    reason: str = ""
    """Why it could not be carried; "" if it was, or if there is no edit."""
    warnings: Sequence[Finding] = ()
    """What a conversion of the new text says, and did not say before."""


def absorb(path: str, settings: Settings, *, to_neighbour: bool = False, wanted: str | None = None) -> Absorbed:
    """Carry the edits of a generated file to its modular file, or to one neighbour.

    Args:
        to_neighbour: whether a neighbour may be changed where the modular file does not do.
        wanted: the edited text; the file on disk when left out.

    Raises `ConversionError` where a file cannot be read, or where the modular file as it is cannot be converted.
    """
    library = Library(settings)
    modular = modular_of(path, settings)
    if not modular or not library.exists(modular):
        raise ConversionError(input_files.not_generated(Location(path), is_generated(library.text(path))))
    before = converted(modular, settings, {})
    if path not in before.files:
        errors = [one for one in before.findings if one.is_error]
        if errors:
            raise ConversionError(*errors)
        return Absorbed({}, reason=f"it is not generated from {os.path.basename(modular)}")
    wanted, expected = library.text(path) if wanted is None else wanted, before.files[path]
    if wanted == expected:
        return Absorbed({})
    sources = line_sources(modular, before.files, library)[path]
    old, new = expected.split("\n"), wanted.split("\n")
    hunks = [Hunk(start, end, tuple(new[first:last])) for start, end, first, last in differing_parts(old, new)]
    if error := _parse_error(path, wanted):
        return Absorbed({}, reason=f"the edit cannot be carried: {error}")
    if stale := _stale(path, wanted, before):
        return Absorbed({}, reason=stale)
    places = tuple(dict.fromkeys(place for hunk in hunks for place in _places(hunk, sources)))
    targets = [modular, *(sorted({one.path for one in places} - {modular}) if to_neighbour else ())]
    aim = {**before.files, path: wanted}
    refusals: list[str] = []
    other_order = ""
    for target, proposal in _proposed(targets, path, before.files, wanted, hunks, sources, library):
        if _parse_error(target, proposal):
            continue  # a guess of the place, of which nobody need hear
        made = converted(modular, settings, {target: proposal})
        if made.files == aim:
            known = {(one.code, one.message) for one in before.findings}
            warnings = [one for one in made.findings if (one.code, one.message) not in known]
            return Absorbed({target: proposal}, warnings=warnings)
        refusals += [one.message for one in made.findings if one.is_error]
        other_order = other_order or _other_order(made.files.get(path, ""), wanted)
    if other_order:
        return Absorbed({}, places, other_order)
    reason = "no edit of the modular file was found that gives this text"
    return Absorbed({}, places, f"{reason}; a conversion says: {refusals[0]}" if refusals else reason)


def _stale(path: str, wanted: str, conversion: Conversion) -> str:
    """Why a file has lines of an older conversion, as far as git tells: lines that are no edit; "" where it has none."""
    history = CommitHistory()
    stale = StaleFile(path, path, conversion, wanted, conversion.files[path])
    cause = history.cause(path, stale.new, stale.sources, ())
    if not cause.is_in_sources:
        return ""
    committed, lines, new = ([*text.split("\n")] for text in (history.committed(path) or "", wanted, stale.new))
    edited = {line for *_, first, last in differing_parts(committed, lines) for line in range(first, last + 1)}
    parts = (range(first, last + 1) for *_, first, last in differing_parts(new, lines))
    left = next((part for part in parts if edited.isdisjoint(part)), None)
    cure = "run `check-modular-conversion --write` first, which undoes your edit, and make it again"
    return (
        ""
        if left is None
        else f"it is stale from line {left.start + 1} on, where nobody has edited it: {cause.text}; {cure}"
    )


def _parse_error(path: str, text: str) -> str:
    """Why a text is not Python, with the line; "" if it is."""
    try:
        parse(text)
    except UNPARSABLE as error:
        place, reason = locate_parse_error(path, error)
        return f"line {place.line} is no Python: {reason}"
    return ""


def _other_order(made: str, wanted: str) -> str:
    """What to do where a conversion gives the lines of an edited file, but in its own order, or with other blank lines; "" where
    it gives others.
    """
    lines, asked = made.split("\n"), wanted.split("\n")
    if sorted(filter(str.strip, lines)) != sorted(filter(str.strip, asked)):
        return ""
    number = next((n for n, pair in enumerate(zip(lines, asked)) if pair[0] != pair[1]), min(len(lines), len(asked)))
    line = f"`{lines[number].strip()}`" if number < len(lines) and lines[number].strip() else "a blank line or the end"
    return (
        f"a conversion gives the same lines in its own order, with {line} in line {number + 1}: edit the file so, or edit "
        "the modular file"
    )


def _proposed(
    targets: Sequence[str],
    path: str,
    made: Mapping[str, str],
    wanted: str,
    hunks: Sequence[Hunk],
    sources: Sequence[LineSource],
    library: Library,
) -> Iterator[tuple[str, str]]:
    """Files with new texts for them: the edited lines in their place, then overrides in the modular file, `targets[0]`."""
    names = library.names(models_folder_of(path, library.settings))
    for target in targets:
        models = (os.path.basename(os.path.dirname(one)) for one in (path, target))
        renamer = Renamer.between_models(names, *models)  # the proof says whether its words are right
        proposals = _proposals(library.text(target), target, hunks, sources, renamer)
        yield from ((target, one) for one in itertools.islice(dict.fromkeys(proposals), MOST_TRIALS))
    overriding = overriding_texts(path, targets[0], made, wanted, library)
    yield from ((targets[0], one) for one in itertools.islice(overriding, MOST_TRIALS))


def _places(hunk: Hunk, sources: Sequence[LineSource]) -> Iterator[LineRange]:
    """Where the replaced lines come from; for an insertion, the lines around it."""
    numbers = range(hunk.start, hunk.end) if hunk.end > hunk.start else range(hunk.start - 1, hunk.end + 1)
    for number in numbers:
        if 0 <= number < len(sources):
            yield from sources[number].places


def _proposals(
    text: str, target: str, hunks: Sequence[Hunk], sources: Sequence[LineSource], renamer: Renamer
) -> Iterator[str]:
    """New texts of a file: each hunk in the lines that it comes from, insertions above or below."""
    ways = [list(_spans(hunk, target, sources)) for hunk in hunks]
    if not all(ways):
        return
    for spans in itertools.islice(itertools.product(*ways), MOST_TRIALS):
        lines = text.split("\n")
        for (start, end), hunk in sorted(zip(spans, hunks), reverse=True):
            lines[start:end] = [renamer.between(line, 0, len(line)) for line in hunk.lines]
        yield "\n".join(lines)


def _spans(hunk: Hunk, target: str, sources: Sequence[LineSource]) -> Iterator[tuple[int, int]]:
    """The lines of the target, from 0 and exclusive, in whose place a hunk may stand."""
    if hunk.end > hunk.start:
        numbers = [_line_in(target, sources, number) for number in range(hunk.start, hunk.end)]
        known = [one for one in numbers if one is not None]
        if known and len(known) == len(numbers):
            yield known[0] - 1, known[-1]
        return
    above, below = _line_in(target, sources, hunk.start - 1), _line_in(target, sources, hunk.start)
    if above is not None:
        yield above, above
    if below is not None:
        yield below - 1, below - 1


def _line_in(target: str, sources: Sequence[LineSource], number: int) -> int | None:
    """The line of the target, from 1, that a line of the generated file comes from."""
    if not 0 <= number < len(sources):
        return None
    own = [one for one in sources[number].places if one.path == target]
    return own[0].first if own else None
