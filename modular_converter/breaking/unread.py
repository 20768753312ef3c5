"""Which models read nothing of what differs in a file that they read: neither they nor the files through which they read it
say a name of what differs, or of a definition that says such a name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from modular_converter.breaking.facts import ModelTree
from modular_converter.convert.schedule import file_difference, reached
from modular_converter.model.module import Module


class UnreadDefinitions:
    """What differs between the files of two trees, by the names under which it may be read."""

    def __init__(self, old: ModelTree, new: ModelTree) -> None:
        self._old, self._new = old, new
        self._names: dict[str, frozenset[str] | None] = {}

    def by(self, model: str, reads: Mapping[str, str]) -> bool:
        """Whether a model that has the same files in both trees reads nothing of what differs.

        Args:
            reads: the files that its facts in the older tree follow from, by their names below the package, with their hashes.
        """
        differing = [name for name, given in reads.items() if self._new.hash(name) != given]
        found = [self._names_in(name, model) for name in differing]
        if None in found:
            return False
        names = frozenset().union(*filter(None, found))
        others = (
            self._new.library.text_if_readable(self._new.path(one)) or "" for one in reads if one not in differing
        )
        return not any(name in text for text in others for name in names)

    def _names_in(self, file: str, model: str) -> frozenset[str] | None:
        """The names in a model's file of what differs; None where other things differ, or what users of the model find."""
        owner, name = os.path.split(file)
        owner = os.path.basename(owner)
        if owner in self._old.library.settings.no_models or name not in self._old.told_of(owner):
            return None
        if file not in self._names:
            sides = [tree.library.module_if_readable(tree.path(file)) for tree in (self._old, self._new)]
            modules = [one for one in sides if one is not None and "__all__" in one.definitions]
            self._names[file] = _names_of_difference(modules) if len(modules) == len(sides) else None
        return self._names[file]


def _names_of_difference(modules: Sequence[Module]) -> frozenset[str] | None:
    """The names of definitions that differ in two texts of a file, and of those that say one of them; None where other things
    differ or say one of them, such as `__all__`.
    """
    if (changed := file_difference(*modules)) is None:
        return None
    names = frozenset(reached(changed.definitions | changed.imports, lambda one: _saying(one, modules)))
    others = (one for module in modules for one in module.statements if one.name not in module.definitions)
    is_said = any(name in one.text for one in others if not one.imports for name in names)
    return None if is_said or "__all__" in names else names


def _saying(name: str, modules: Iterable[Module]) -> Iterable[str]:
    """The definitions whose text has a name, as strings do, too."""
    return (one for module in modules for one, statement in module.definitions.items() if name in statement.text)
