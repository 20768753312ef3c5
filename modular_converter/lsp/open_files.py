"""The texts that an editor holds, and the conversions of the modular files among them, each kept until something that it
has read changes; and what an editor asks about a place in a modular or a generated file. Nothing is written. Lines count
from 1, columns in characters from 1.

A rename of a definition in all modular files that name it is proven by a conversion of these: the generated files become
what they were under the new name, or nothing is renamed.
"""

from __future__ import annotations

import ast
import keyword
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from modular_converter.check.cache.store import cache_folder
from modular_converter.check.conversions import files_required
from modular_converter.convert.batch import Run
from modular_converter.convert.inherit.resolve import neighbour_module, open_target
from modular_converter.convert.schedule import heirs_of
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import Renamer, pattern_of
from modular_converter.files.arguments import Listings, ModelFolders, discover, has_modular_name
from modular_converter.files.read import given_text, is_installed
from modular_converter.files.write import is_generated
from modular_converter.findings import (
    UNPARSABLE,
    Conversion,
    ConversionError,
    Edit,
    Location,
    apply_edits,
    first_of,
    locate_word,
    split_lines,
)
from modular_converter.model.class_blocks import class_node
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import parse, top_line, walk
from modular_converter.model.resolver import Definition
from modular_converter.provenance.generated import LineRange, LineSource, is_from, joined, line_sources, words_of
from modular_converter.reporting.display import count
from modular_converter.settings.load import load_settings_of, profile_settings
from modular_converter.settings.values import Settings, is_modular, models_folder_of, modular_of


MOST_CONVERSIONS = 3
"""How often one change converts the same file: an heir of two files that change, or of a circle."""


class Refusal(Exception):
    """Raised where there is no answer; the message says why, for the person at the editor."""


@dataclass
class _Known:
    """A modular file with what it gives."""

    conversion: Conversion
    sources: dict[str, list[LineSource]] | None = None
    """Filled when it is first asked for."""

    def has_read_any(self, paths: Set[str]) -> bool:
        """Whether it depends on one of some files. Its own generated files, which it asks for, do not count."""
        return not paths.isdisjoint(self.conversion.reads.keys() - self.conversion.files.keys())


@dataclass
class OpenFiles:
    """The texts that an editor holds in place of files on disk.

    The modular files among them count as what they will generate: an heir sees the unsaved changes of its parent.
    """

    texts: dict[str, str] = field(default_factory=dict)
    """Absolute path -> its text, with `\\n` line ends."""
    refused: dict[str, ConversionError] = field(default_factory=dict)
    """The texts that cannot be read, such as those that are too large."""
    _known: dict[str, _Known] = field(default_factory=dict)

    def put(self, path: str, text: str) -> list[str]:
        """Take the new text of a file; return the open modular files that are converted anew."""
        self.refused.pop(path, None)
        try:
            self.texts[path] = given_text(path, text, _settings_for_reading(path))
        except ConversionError as error:
            self.texts.pop(path, None)
            self.refused[path] = error
        return self.changed([path])

    def close(self, path: str) -> list[str]:
        """Forget the text of a file: that on disk counts again. Returns the files that are converted anew."""
        self.texts.pop(path, None)
        self.refused.pop(path, None)
        known = self._known.pop(path, None)
        return self.changed([path, *(known.conversion.files if known else ())])

    def changed(self, paths: Iterable[str] | None = None) -> list[str]:
        """Convert again the open modular files that have read one of some files, and their heirs in turn.

        Args:
            paths: the files that have changed; all open files when left out, as for changed settings.
        """
        if paths is None:
            self._known.clear()
            paths = [*self.texts, *self.refused]
        changed, done = set(paths), Counter[str]()
        for closed in [path for path in self._known if not self.is_open(path)]:
            del self._known[closed]
        while changed:
            affected = {path for path in changed if self.is_open(path) and has_modular_name(path)}
            affected |= {one for one, known in self._known.items() if known.has_read_any(changed)}
            affected = {one for one in affected if done[one] < MOST_CONVERSIONS}
            done.update(affected)
            changed = {path for one in sorted(affected) for path in self._convert(one)}
        return sorted(done)

    def is_open(self, path: str) -> bool:
        """Whether the editor holds this file."""
        return path in self.texts or path in self.refused

    def _convert(self, modular: str) -> list[str]:
        """Convert a modular file, and return the generated files that are not what they were."""
        before = self._known.pop(modular, None)
        old = before.conversion.files if before else {}
        new = self.conversion(modular).files
        return [path for path in {**old, **new} if old.get(path) != new.get(path)]

    def overlay(self, without: str = "") -> dict[str, str]:
        """What is read in place of files on disk: the open files, and what the open modular files generate.

        Args:
            without: a modular file whose own generated files are left out, since it is being converted.
        """
        generated: dict[str, str] = {}
        for path, known in self._known.items():
            if path != without and self.is_open(path):
                generated.update(known.conversion.files)
        return {**self.texts, **generated}

    def library(self, path: str) -> Library:
        """What reads the files, as the editor has them, by the settings of a file. Raises `ConversionError`."""
        return Library(load_settings_of([path]), self.overlay())

    def conversion(self, modular: str) -> Conversion:
        """The conversion of a modular file, whether it is open or not."""
        if modular not in self._known:
            self._known[modular] = _Known(self._converted(modular))
        return self._known[modular].conversion

    def _converted(self, modular: str) -> Conversion:
        if modular in self.refused:
            return Conversion(modular, {}, self.refused[modular].findings)
        try:
            settings = load_settings_of([modular])
        except ConversionError as error:  # settings in the middle of an edit
            return Conversion(modular, {}, error.findings)
        return Run(settings, self.overlay(without=modular), workers=1).convert([modular])[0]

    def sources(self, modular: str) -> dict[str, list[LineSource]]:
        """Where the lines of its generated files come from. Raises `Refusal` where it cannot be converted."""
        conversion = self.conversion(modular)
        if conversion.failed:
            raise Refusal(f"{os.path.basename(modular)} cannot be converted: {conversion.findings[0].message}")
        known = self._known[modular]
        if known.sources is None:
            library = Library(load_settings_of([modular]), self.overlay(without=modular))
            known.sources = line_sources(modular, conversion.files, library)
        return known.sources


def _settings_for_reading(path: str) -> Settings:
    """The settings of a file, or those of the profile: wrong settings are told by its conversion."""
    try:
        return load_settings_of([path])
    except ConversionError:
        return profile_settings()


MOST_SHOWN = 60
"""The most lines of a hover."""
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)


class CodeSpot(NamedTuple):
    """The definition of a file that a line belongs to."""

    statement: Statement
    method: str = ""
    """The method of a class that the line belongs to; "" for none."""


def spot_at(module: Module, line: int) -> CodeSpot | None:
    """The definition at a line; None where there is none."""
    for statement in module.statements:
        if statement.line <= line <= statement.line + statement.text.count("\n") and statement.name:
            if statement.role is not Role.CLASS:
                return CodeSpot(statement)
            return CodeSpot(
                statement, next((one.name for one in _methods(statement) if line in _lines(one, statement)), "")
            )
    return None


def _methods(statement: Statement) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    try:
        return [one for one in class_node(statement.text).body if isinstance(one, _METHODS)]
    except UNPARSABLE:
        return []


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef, statement: Statement) -> range:
    """The lines of a method in its file, decorators included."""
    return range(statement.line + top_line(node) - 1, statement.line + (node.end_lineno or node.lineno))


def hover_text(text: str) -> str:
    """A text for a hover: its first lines, and the number of the others."""
    lines = textwrap.dedent(text).split("\n")
    more = len(lines) - MOST_SHOWN
    return "\n".join([*lines[:MOST_SHOWN], *([f"# … {more} more lines"] if more > 0 else [])])


def name_at(text: str, line: int, column: int) -> str:
    """The name at a place, with what stands before its last point up to there: `super().forward` gives `forward`."""
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return ""
    for match in _NAME.finditer(lines[line - 1]):
        if match.start() < column <= match.end() + 1:
            end = re.compile(r"\w*").match(match.string, max(column - 1, match.start()))
            return match.string[match.start() : end.end() if end else match.end()].rstrip(".")
    return ""


def generated_text(spot: CodeSpot, conversion: Conversion, library: Library) -> str:
    """A definition, or a method of a class, as it is generated. Raises `Refusal` where there is none."""
    if conversion.failed:
        raise Refusal(f"`{spot.statement.name}` is not generated: {conversion.findings[0].message}")
    for path, origins in conversion.origins.items():
        if any(one.name == spot.statement.name for one in origins):
            library.put({path: conversion.files[path]})
            statement = library.module(path).definitions.get(spot.statement.name)
            if statement is not None:
                return _part(statement, spot.method)
    raise Refusal(f"`{spot.statement.name}` is in no generated file")


def _part(statement: Statement, method: str) -> str:
    lines = statement.text.split("\n")
    found = [one for one in _methods(statement) if one.name == method] if method else []
    if not found:
        return statement.text
    here = _lines(found[-1], statement)
    return "\n".join(lines[here.start - statement.line : here.stop - statement.line])


class Lens(NamedTuple):
    """A line of a modular file with what stands above it."""

    line: int
    title: str
    name: str
    """The class that it is about; "" for the file."""


def lenses(modular: str, files: OpenFiles) -> Iterator[Lens]:
    """What the classes of a modular file inherit from, and how many lines that saves."""
    library, conversion = files.library(modular), files.conversion(modular)
    module = library.module(modular)
    if conversion.files:
        names = ", ".join(map(os.path.basename, sorted(conversion.files)))
        lines = sum(text.count("\n") for text in conversion.files.values())
        yield Lens(1, f"generates {names}: {_saved(lines - library.text(modular).count(chr(10)))}", "")
    for name in module.classes:
        statement = module.definitions[name]
        if (parent := _neighbour_parent(statement, module, library)) is None:
            continue
        title = f"inherits from {parent.name} of {os.path.basename(os.path.dirname(parent.path))}"
        if not conversion.failed:
            text = generated_text(CodeSpot(statement), conversion, library)
            title += f": {_saved(text.count(chr(10)) - statement.text.count(chr(10)))}"
        yield Lens(locate_word(modular, name, library.text(modular), statement.line).line, title, name)


def _saved(lines: int) -> str:
    return f"{count(lines, 'line')} saved" if lines >= 0 else f"{count(-lines, 'line')} more than generated"


def _neighbour_parent(statement: Statement, module: Module, library: Library) -> Definition | None:
    for base in statement.bases:
        imported = module.imported.get(base.partition(".")[0])
        if imported is not None and neighbour_module(imported.module, library.settings) is not None:
            found = library.resolver.name_in(module.path, base)
            if found is not None and found.name:
                return found
    return None


def definitions(path: str, line: int, column: int, files: OpenFiles) -> list[Location]:
    """Where what stands at a place of a modular file comes from: the parent of a class at its name, the parent's method at
    the name of a method or behind `super()`, else the definition of an imported name.
    """
    library = files.library(path)
    module, text = library.module(path), library.text(path)
    name, spot = name_at(text, line, column), spot_at(module, line)
    last = name.rpartition(".")[2]
    statement = spot.statement if spot and spot.statement.role is Role.CLASS else None
    if statement is not None and last:
        before = text.split("\n")[line - 1][: column - 1]
        is_super = re.search(r"super\([^()]*\)\.\w*$", before) is not None
        is_method = re.search(r"\bdef\s+\w*$", before) is not None
        if is_super or is_method:
            return [*_above(statement, module, library, last)][:1]
        if name == statement.name:
            found = (library.resolver.name_in(path, base) for base in statement.bases)
            return [place for one in found if one is not None and (place := _place(one, library))]
    definition = library.resolver.name_in(path, name) if name else None
    place = _place(definition, library) if definition is not None else None
    return [place] if place is not None else []


def _place(definition: Definition, library: Library) -> Location | None:
    """The place of a definition; None for one that cannot be read."""
    if not definition.name:
        return Location(definition.path)
    try:
        statement = library.module(definition.path).definitions.get(definition.name)
        text = library.text(definition.path)
    except ConversionError:
        return None
    return locate_word(definition.path, definition.name, text, statement.line if statement else 1)


def _above(statement: Statement, module: Module, library: Library, method: str) -> Iterator[Location]:
    """The definitions of a method in the ancestors of a class, in installed packages too, the nearest first."""
    for base in statement.bases:
        for above in library.resolver.ancestors(base, module, anywhere=True):
            if (parent := above.statement) is not None:
                lines = (parent.line + node.lineno - 1 for node in _methods(parent) if node.name == method)
                path = above.home.path
                yield from (locate_word(path, method, library.text(path), line) for line in lines)


def generated_lines(modular: str, line: int, files: OpenFiles) -> list[LineRange]:
    """The lines of generated files that come from a line of a modular file. Raises `Refusal`."""
    asked = {modular: {line}}
    return [
        place
        for path, sources in sorted(files.sources(modular).items())
        for place in joined(LineRange(path, at, at) for at, one in enumerate(sources, 1) if is_from(one, asked))
    ]


def source_lines(path: str, line: int, files: OpenFiles) -> list[LineRange]:
    """The lines of modular files and neighbours that a line of a generated file comes from. Raises `Refusal` where the
    file is not what its modular file gives.
    """
    modular = modular_of(path, load_settings_of([path]))
    library = files.library(path)
    if not modular or not library.exists(modular):
        raise Refusal(f"no modular file generates {os.path.basename(path)}")
    sources = files.sources(modular).get(path)
    if sources is None:
        raise Refusal(f"{os.path.basename(modular)} does not generate {os.path.basename(path)}")
    text = files.texts.get(path)
    if (Library(library.settings).text(path) if text is None else text) != files.conversion(modular).files[path]:
        raise Refusal(f"{os.path.basename(path)} is not what {os.path.basename(modular)} gives: convert it first")
    return list(sources[line - 1].places) if 0 < line <= len(sources) else []


MOST_HEIRS = 60
"""The most modular files that are converted for one rename."""
MOST_FILES = 20_000
"""The most files of a package that are searched for the old name."""
NAMED = 3
"""The number of files that a refusal names."""


@dataclass(frozen=True)
class Family:
    """A modular file with those that inherit from it, directly or not, and the names that change in them."""

    home: str
    members: tuple[str, ...]
    """All of them, the home included."""
    words: Mapping[str, str]
    """Old name -> new name: the definition's, and those that follow from it in the heirs (`GemmaMLP`, `Gemma2MLP`)."""


def renamable(path: str, line: int, column: int, files: OpenFiles) -> tuple[str, str]:
    """The name at a place, and the modular file that defines it. Raises `Refusal` where it cannot be renamed."""
    library = files.library(path)
    word = name_at(library.text(path), line, column).rpartition(".")[2]
    found = library.resolver.name_in(path, word) if word else None
    if found is None or found.name != word:
        raise Refusal(f"`{word}` is no definition of a modular file" if word else "there is no name at this place")
    home = _home(found.path, word, library)
    if not home:
        name = os.path.basename(found.path)
        raise Refusal(
            f"`{word}` is not written in a modular file: {name} has it from elsewhere, or is written by hand"
        )
    if is_installed(home):
        raise Refusal(f"`{word}` belongs to an installed package, which is not changed")
    return word, home


def _home(path: str, word: str, library: Library) -> str:
    """The modular file that defines a name of itself or of one of its generated files; "" for none."""
    for modular in (path, modular_of(path, library.settings)):
        exists = is_modular(modular, library.settings) and library.exists(modular)
        if exists and word in library.module(modular).definitions:
            return modular
    return ""


def rename(path: str, line: int, column: int, new: str, files: OpenFiles) -> dict[str, list[Edit]]:
    """The edits of modular files that give the definition at a place a new name; path -> edits.

    The generated files are not among them: they are converted afterwards. Raises `Refusal` with the reason where the
    rename would change anything else, or would leave the old name in a file written by hand.
    """
    word, home = renamable(path, line, column, files)
    if not new.isidentifier() or keyword.iskeyword(new):
        raise Refusal(f"{new!r} is not a name of Python")
    library = files.library(home)
    family = _family(home, word, new, library)
    pattern = pattern_of(family.words)
    edits = {
        one: [
            Edit(number, match.start() + 1, number, match.end() + 1, family.words[match.group()])
            for number, line in enumerate(split_lines(library.text(one)), 1)
            for match in pattern.finditer(line)
        ]
        for one in family.members
    }
    edits = {one: found for one, found in edits.items() if found}
    for one in edits:
        _refuse_other_meanings(one, family, library)
    _refuse_other_files(edits, family, library)
    _prove(edits, family, library)
    return edits


def _family(home: str, word: str, new: str, library: Library) -> Family:
    """The heirs of a modular file, and the names that follow from a new name."""
    paths = discover([models_folder_of(home, library.settings)], None).paths
    needs = files_required(paths, library.settings, cache_folder(), library)
    heirs = sorted(heirs_of(home, needs, library.settings) - {home})
    if len(heirs) >= MOST_HEIRS:
        raise Refusal(f"{len(heirs) + 1} modular files inherit from {os.path.basename(home)}: rename it in steps")
    words = {word: new}
    old = open_target(home, library)
    for path in heirs:
        heir = open_target(path, library)
        names = heir.names.with_written(old.model, old.module.classes)
        renamer = Renamer.between_models(names, old.model, heir.model)
        words.setdefault(renamer.name(word), renamer.name(new))
    if clash := sorted(name for name, then in words.items() if name == then):
        raise Refusal(f"the new name would leave `{clash[0]}` as it is")
    return Family(home, (home, *heirs), words)


def _refuse_other_meanings(path: str, family: Family, library: Library) -> None:
    """Raise `Refusal` where one of the old names means something else in a modular file."""
    module = library.module(path)
    imported = {
        one.name: library.resolver.definition(one.module, one.name, os.path.dirname(path))
        for one in module.imported.values()
        if one.name in family.words
    }
    used = {name for one in module.statements for name in one.uses & family.words.keys()}
    for name in sorted(used):
        found = imported.get(name) or library.resolver.name_in(path, name)
        if found is None or _home(found.path, name, library) not in family.members:
            raise Refusal(f"`{name}` means something else in {os.path.basename(path)}")
    for node in walk(parse(library.text(path))):
        field = "arg" if isinstance(node, (ast.arg, ast.keyword)) else "attr"
        if (other := getattr(node, field, None)) in family.words:
            raise Refusal(f"`{other}` is also a parameter or an attribute in {os.path.basename(path)}")


def _refuse_other_files(edited: Iterable[str], family: Family, library: Library) -> None:
    """Raise `Refusal` where a file of the package that people write has an old name, or a member a new one."""
    old, new = pattern_of(family.words), pattern_of(family.words.values())
    top = os.path.dirname(models_folder_of(family.home, library.settings))
    found = []
    for number, path in enumerate(ModelFolders(Listings(), lambda name: name.endswith(".py")).files_below(top)):
        if number >= MOST_FILES:
            raise Refusal(f"more than {MOST_FILES:,} files may hold `{next(iter(family.words))}`")
        text = library.text_if_readable(path) or ""
        if path in family.members and new.search(text):
            raise Refusal(f"{os.path.basename(path)} already has one of {', '.join(sorted(family.words.values()))}")
        if path not in edited and old.search(text) and not is_generated(text):
            found.append(os.path.relpath(path, top))
    if found:
        raise Refusal(f"files written by hand also have the name: {first_of(sorted(found), NAMED)}")


def _prove(edits: Mapping[str, list[Edit]], family: Family, library: Library) -> None:
    """Raise `Refusal` unless the conversions of the edited files are those of the present ones under the new names."""
    texts = {path: apply_edits(library.text(path), some) for path, some in edits.items()}
    before = _converted(family, library, {})
    after = _converted(family, library, texts)
    for path, old in before.items():
        new, name = after[path], os.path.basename(path)
        if old.failed or new.failed:
            failed = next(one for one in (old, new) if one.failed)
            raise Refusal(
                f"{name} {'cannot' if old.failed else 'could not'} be converted: {failed.findings[0].message}"
            )
        for file in sorted({*old.files, *new.files}):
            made = {family.words.get(one.name, one.name) for one in old.origins.get(file, ())}
            if more := sorted({one.name for one in new.origins.get(file, ())} - made):
                raise Refusal(
                    f"{os.path.basename(file)} would have `{more[0]}` anew, since a parent's class names it so"
                )
            if difference := _difference(old.files.get(file, ""), new.files.get(file, ""), family.words):
                raise Refusal(f"{os.path.basename(file)} would change otherwise than by the name: {difference}")
        if codes := Counter(one.code for one in new.findings) - Counter(one.code for one in old.findings):
            raise Refusal(f"{name} would have a new finding: {', '.join(sorted(codes))}")


def _converted(family: Family, library: Library, texts: Mapping[str, str]) -> dict[str, Conversion]:
    given = {path: text for path, text in library.overlay.items() if not is_generated(text)}
    found = Run(library.settings, {**given, **texts}, workers=1).convert(family.members)
    return {one.path: one for one in found}


def _difference(old: str, new: str, words: Mapping[str, str]) -> str:
    """A line's worth of words that two texts do not share, whatever their order, once the names are changed."""
    expected = Counter(words.get(word, word) for word in words_of(old))
    found = Counter(words_of(new))
    if expected == found:
        return ""
    names = sorted(word for word in (expected - found) + (found - expected) if len(word) > 1)
    return first_of([f"`{name}`" for name in names], NAMED) or "its punctuation"
