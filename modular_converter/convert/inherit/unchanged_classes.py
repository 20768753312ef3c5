"""The classes of a modular file that edits of neighbours do not reach: their text is that of the generated file as it was made
before the edits, and they need not be merged again.

A merge follows from its two classes, from those that these inherit from, and from how names are written. Where all of this is
the same before the edits and now, the class is. A class with a metaclass, which may be anywhere, is merged again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

from modular_converter.convert.inherit.parents_apart import with_parents_apart_in
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, rename_neighbours
from modular_converter.convert.inherit.resolve import open_target, resolve_imports, with_heirs_asked_for
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import ConversionError
from modular_converter.model.module import Role, Statement
from modular_converter.model.overriding import METACLASS
from modular_converter.settings.values import modular_of


@dataclass(frozen=True)
class UnchangedClasses:
    """Finds the classes that are as generated files on disk have them."""

    older: Library
    """It reads files as they were when the generated files were made."""
    edited: Set[str]
    """The folders with edited files, in which generated files may be anything."""
    lacking: Set[str] = frozenset()
    """The files of which nobody knows what they were."""

    def __call__(self, now: Neighbourhood, library: Library) -> Mapping[str, Statement]:
        """The unchanged heirs of a modular file, as its generated files have them. These count as read."""
        path = now.target.path
        folder = os.path.dirname(path)
        if folder in self.edited or now.resolution.apart:
            return {}
        with os.scandir(folder) as found:
            files = [one.path for one in found if modular_of(one.path, library.settings) == path]
        older = self.older.observing(Observations())
        modules = [one for one in map(older.module_if_readable, files) if one is not None]
        texts = [older.text(one.path) for one in modules]
        try:
            resolution = resolve_imports(open_target(path, older), older)
            before = rename_neighbours(with_heirs_asked_for(resolution), older)
        except ConversionError:
            return {}
        if with_parents_apart_in(resolution, texts, library.settings) is not resolution:
            return {}
        library.observations.files.update((one.path, older.hash(one.path)) for one in modules)
        classes = [(name, one) for module in modules for name, one in module.definitions.items()]
        by_name = {name: one for name, one in classes if one.role is Role.CLASS}
        once = {name for name in by_name if sum(name == other for other, _ in classes) == 1}
        same = _TwoStates(before, now, older, library).same
        if not self.lacking.isdisjoint(older.observations.files):
            return {}
        return {name: by_name[name] for name in same & once if now.parent_of(now.classes[name])}


@dataclass(frozen=True)
class _TwoStates:
    before: Neighbourhood
    now: Neighbourhood
    older: Library
    library: Library

    @property
    def same(self) -> Set[str]:
        """The classes of the modular file that are merged from the same."""
        old, new = self.before.target, self.now.target
        found, seen = set[str](), set[str]()
        if old.module.names == new.module.names and old.cased == new.cased and self._are_spelt_alike():
            for name, statement in self.now.classes.items():
                if self._is_same(statement, seen - found):
                    found.add(name)
                seen.add(name)
        return found

    def _are_spelt_alike(self) -> bool:
        """Whether names of models are written alike."""
        old, new = self.before.target.names, self.now.target.names
        shared = old.written.keys() & new.written.keys()
        return old.by_type == new.by_type and all(old.written[one] == new.written[one] for one in shared)

    def _is_same(self, new: Statement, changed: Set[str]) -> bool:
        """Whether a class is merged from the same; `changed` are the classes above it that are not."""
        old = self.before.classes.get(new.name)
        if old is None or old.text != new.text or not changed.isdisjoint(new.bases):
            return False
        if (found := self.now.parent_of(new)) is None or found != self.before.parent_of(old):
            return found is None and self.before.parent_of(old) is None
        base, dotted, parent = found
        sides = [one.neighbours[dotted].definitions for one in (self.before, self.now)]
        is_plain = f"{base}[" not in new.text  # else it asks how others write the base
        if not is_plain or sides[0].renamer != sides[1].renamer or sides[0].module.aliases != sides[1].module.aliases:
            return False
        todo, seen = [parent, *new.bases], set[str]()
        while todo:  # the parent and its bases, as the generated file has them
            name = todo.pop().partition("[")[0]
            if name in changed:
                return False
            if name in seen or name not in sides[1]:
                continue
            seen.add(name)
            if name not in sides[0] or sides[0][name].text != sides[1][name].text:
                return False
            todo += sides[1][name].bases
        return all(self._has_same_ancestors(one) for one in new.bases)

    def _has_same_ancestors(self, base: str) -> bool:
        pairs = ((self.before, self.older), (self.now, self.library))
        old, new = ([*_texts(base, one, library)] for one, library in pairs)
        return old == new and not any(METACLASS in text for text in new)


def _texts(base: str, neighbours: Neighbourhood, library: Library) -> Iterator[str]:
    """The texts of a base and its ancestors; "" for one that cannot be read."""
    return ("" if one is None else one.text for one in library.resolver.lineage(base, neighbours.target.module))
