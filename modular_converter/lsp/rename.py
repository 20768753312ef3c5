"""Rename a definition in the modular files that name it. A conversion of all of them proves it: the generated files become
what they were under the new name, or nothing is renamed.
"""

from __future__ import annotations

import ast
import keyword
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from modular_converter.check.cache.store import cache_folder
from modular_converter.check.conversions import files_required
from modular_converter.convert.batch import Run
from modular_converter.convert.emit.banner import is_generated
from modular_converter.convert.inherit.resolve import open_target
from modular_converter.convert.schedule import reached
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import Renamer
from modular_converter.files.arguments import Listings, ModelFolders, discover
from modular_converter.files.read import is_installed
from modular_converter.findings import Conversion, Edit, apply_edits, first_of, split_lines
from modular_converter.lsp.open_files import OpenFiles, Refusal, name_at
from modular_converter.model.nodes import parse, walk
from modular_converter.provenance.generated import words_of
from modular_converter.settings.values import is_modular, models_folder_of, modular_of


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
    pattern = _pattern(family.words)
    edits = {one: list(_edits(library.text(one), pattern, family.words)) for one in family.members}
    edits = {one: found for one, found in edits.items() if found}
    for one in edits:
        _refuse_other_meanings(one, family, library)
    _refuse_other_files(edits, family, library)
    _prove(edits, family, library)
    return edits


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, sorted(words)))})(?!\w)")


def _family(home: str, word: str, new: str, library: Library) -> Family:
    """The heirs of a modular file, and the names that follow from a new name."""
    paths = discover([models_folder_of(home, library.settings)], None).paths
    needs = files_required(paths, library.settings, cache_folder(), library)
    givers = {path: {modular_of(one, library.settings) for one in needed} for path, needed in needs.items()}
    heirs = sorted(reached([home], lambda giver: (path for path in givers if giver in givers[path])) - {home})
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


def _edits(text: str, pattern: re.Pattern[str], words: Mapping[str, str]) -> Iterator[Edit]:
    for number, line in enumerate(split_lines(text), 1):
        for match in pattern.finditer(line):
            yield Edit(number, match.start() + 1, number, match.end() + 1, words[match.group()])


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
    old, new = _pattern(family.words), _pattern(family.words.values())
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
