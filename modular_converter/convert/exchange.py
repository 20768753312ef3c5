"""Generated files made current by exchanging definitions: where an edit of a neighbour leaves all but the bodies of some of its
definitions, an heir's files change in what it takes from these, and in nothing else.

What is exchanged is found twice, as the heir takes it from the neighbour before the edit and after it. Only where the files
have the former, word for word, is it exchanged for the latter; in any other case the heir is converted.
"""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.inherit.build import build_classes
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, rename_neighbours
from modular_converter.convert.inherit.resolve import open_target, resolve_imports
from modular_converter.convert.schedule import Readings
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import UNPARSABLE, Conversion, ConversionError
from modular_converter.model.bindings import bindings_of
from modular_converter.model.class_blocks import names_in_class
from modular_converter.model.module import Module, Role
from modular_converter.model.nodes import parse


_WORD = re.compile(r"\w+")
_BUILTINS = frozenset(vars(builtins))
_Sides = tuple[Library, Library]
"""What reads the files before the edit, and after it."""


class _Draft(NamedTuple):
    """A modular file in whose generated files definitions have to be exchanged."""

    path: str
    pairs: Sequence[tuple[str, str]]
    """Each definition before the edit and after it, not formatted."""
    seen: Observations

    @property
    def named(self) -> dict[str, str]:
        """All texts, by the names under which they are formatted."""
        start = os.path.join(os.path.dirname(self.path), "_")
        texts = (text for pair in self.pairs for text in pair)
        return {f"{start}{number}.py": text for number, text in enumerate(texts)}


class DefinitionExchange:
    """Exchanges definitions in the generated files of heirs."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._known: dict[tuple[str, str, str], frozenset[str] | None] = {}

    def conversions(self, paths: Iterable[str], library: Library) -> dict[str, Conversion]:
        """The conversions of those modular files of which nothing but definitions has to be exchanged, without warnings.

        Args:
            library: it reads the neighbours as they are after the edit.
        """
        if library.settings.by_folder:  # formatted in several ways
            return {}
        drafts = [draft for path in paths if (draft := self._draft(path, library)) is not None]
        result = format_files({name: text for one in drafts for name, text in one.named.items()}, library.settings)
        found = {}
        for draft in (one for one in drafts if result.failures.keys().isdisjoint(one.named)):
            heir = self._readings.heirs[draft.path]
            texts = {path: library.text(path) for path in heir.files} if heir is not None else {}
            formatted = [result.texts[name].strip("\n") for name in draft.named]
            if _exchange(texts, zip(formatted[::2], formatted[1::2])):
                end = library.line_end(draft.path)
                files = {path: text.replace("\n", end) for path, text in texts.items()}
                seen = draft.seen
                found[draft.path] = Conversion(draft.path, files, reads=seen.reads, packages=seen.packages)
        return found

    def _draft(self, path: str, library: Library) -> _Draft | None:
        """None for a modular file that has to be converted."""
        changed, heir = self._readings.changed(library, path), self._readings.heirs.get(path)
        if not changed or heir is None:
            return None
        seen = Observations()
        sides = self._readings.older.observing(Observations()), library.observing(seen)
        bodies = {}
        for file, name in [(file, name) for file, names in changed.items() for name in names]:
            words = self._body(file, name, sides)
            if words is None or not words.isdisjoint(heir.demanded):
                return None
            bodies[file, name] = words
        try:
            pairs = _pairs(path, bodies, sides, [*map(library.text, heir.files)])
        except (ConversionError, LookupError, *UNPARSABLE):  # a conversion tells the reason
            return None
        return _Draft(path, pairs, seen) if pairs is not None else None

    def _body(self, file: str, name: str, sides: _Sides) -> frozenset[str] | None:
        key = file, sides[1].hash(file), name
        if key not in self._known:
            self._known[key] = _words_of_body(name, *(side.module(file) for side in sides))
        return self._known[key]


def _exchange(texts: dict[str, str], pairs: Iterable[tuple[str, str]]) -> bool:
    """DefinitionExchange definitions in texts; whether each was in one place."""
    for before, after in pairs:
        places = 0
        for path, text in texts.items():
            around = f"\n{text}\n"
            places += around.count(f"\n{before}\n")
            texts[path] = around.replace(f"\n{before}\n", f"\n{after}\n")[1:-1]
        if places != 1:
            return False
    return True


def _words_of_body(name: str, old: Module, new: Module) -> frozenset[str] | None:
    """The words that only one of two states of a definition has; None where more has changed than its body, or something
    that other definitions need.
    """
    one, other = old.definitions[name], new.definitions[name]
    outside = [(it.role, it.name, it.lead, it.bases, it.inner_imports, it.joined) for it in (one, other)]
    if one.role not in (Role.CLASS, Role.FUNCTION) or outside[0] != outside[1]:
        return None
    scopes = [bindings_of(*parse(it.text).body) for it in (one, other)]
    of_module = [[names - _BUILTINS for names in (it.module_names, it.needs, it.calls_when_made)] for it in scopes]
    texts = one.text, other.text
    words = frozenset(_WORD.findall(texts[0])).symmetric_difference(_WORD.findall(texts[1]))
    if of_module[0] != of_module[1] or not words.isdisjoint(old.names | new.names):
        return None
    bound = names_in_class(texts[0]) ^ names_in_class(texts[1]) if one.role is Role.CLASS else frozenset()
    others = frozenset[str]().union(*(it.uses for it in new.statements if it is not other)) if bound else bound
    return words if bound.isdisjoint(others) else None


def _pairs(
    path: str, changed: Mapping[tuple[str, str], frozenset[str]], sides: _Sides, texts: Sequence[str]
) -> Sequence[tuple[str, str]] | None:
    """The definitions in generated files that come from those that have changed, before and after; None where more than
    these may differ.

    Args:
        path: the modular file.
        changed: the files and names of what has changed, with the words that differ.
        texts: those of the generated files.
    """
    before, after = (rename_neighbours(resolve_imports(open_target(path, one), one), one) for one in sides)
    if _renamers(before) != _renamers(after):
        return None
    words = frozenset[str]().union(*changed.values())
    wanted, pairs = set[str](), list[tuple[str, str]]()
    for dotted, renamed in after.neighbours.items():
        for name in (name for file, name in changed if file == renamed.neighbour.path):
            new = renamed.definitions.renamer.name(name)
            wanted |= {one.name for one in after.classes.values() if (after.parent_of(one) or ())[1:] == (dotted, new)}
            is_there = re.compile(rf"^(?:class|def|async def) {new}\b", re.MULTILINE)
            if new not in after.target.module.definitions and any(map(is_there.search, texts)):
                if sum(new in one.definitions for one in after.neighbours.values()) > 1:  # a copy of either
                    return None
                old_copy, copy = (some.neighbours[dotted].definitions[new] for some in (before, after))
                pairs.append((old_copy.lead + old_copy.text, copy.lead + copy.text))
    built = [build_classes(some, side, wanted) for some, side in zip((before, after), sides)]
    for name in sorted(wanted):
        old, merged = (one[name] for one in built)
        if (
            not (old.uses ^ merged.uses) <= words
        ):  # a statement that both classes have is the child's, with what it needs
            return None
        pairs.append((old.lead + old.text, merged.lead + merged.text))
    return pairs


def _renamers(neighbours: Neighbourhood) -> list[object]:
    return [
        (dotted, one.prefix, one.definitions.renamer, one.sibling_renamer)
        for dotted, one in neighbours.neighbours.items()
    ]
