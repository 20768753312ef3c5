"""Which definitions of a neighbour's file a modular file reads, so that heirs of an edited file are converted only where
what differs in it is theirs.

What a conversion takes of a neighbour is what the modular file names and what the generated files have from it, with all
that these need. A neighbour's definition in whose place the modular file has its own is not read.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

from modular_converter.convert.inherit.resolve import is_sibling, modules_of, neighbour_module
from modular_converter.convert.schedule import reached
from modular_converter.convert.source.library import Library
from modular_converter.findings import Conversion, ConversionError
from modular_converter.model.module import Module, Role
from modular_converter.settings.values import models_folder_of, modular_of, parts_below_models


_WORD = re.compile(r"\w+")
_LAST_WORD = re.compile(r"(?:[A-Z]+|[A-Z]?[a-z]*)\d*_*$")
"""`Norm` of `LlamaRMSNorm`: a copy in another model has it, too."""
_DEFINED = re.compile(r"^\s*(?:class|(?:async\s+)?def)\s+(\w+)|^(\w+)(?=\s*[:=])", re.MULTILINE)
_IMPORTED = re.compile(r"^\s*from\s+([\w.]+)\s+import", re.MULTILINE)
_WITH_BODY = (Role.CLASS, Role.FUNCTION, Role.ASSIGNMENT)


def _key(name: str) -> str:
    return name.replace("_", "").lower()


class _Heir(NamedTuple):
    """A modular file, as it names what it reads."""

    model: str
    words: frozenset[str]
    own: frozenset[str]
    """The names that it defines."""
    copied: frozenset[str]
    """The names that its generated files define beside those."""


class Readings:
    """What modular files read of their neighbours. Where that is not certain, they read everything."""

    def __init__(
        self, required: Mapping[str, frozenset[str]], edited: Set[str], before: Mapping[str, str], disk: Library
    ) -> None:
        """
        Args:
            required: modular file -> the neighbour files that it imports from.
            edited: the files that have been edited.
            before: edited file -> its text before. The generated files on disk were made when it was so.
            disk: it reads the files on disk.
        """
        self.required, self._edited, self._before, self._disk = required, edited, before, disk
        self._older = Library(disk.settings, dict(before))
        self._heirs: dict[str, _Heir | None] = {}
        self._differences: dict[tuple[str, str], frozenset[str] | None] = {}

    def current(self, paths: Iterable[str]) -> dict[str, Conversion]:
        """Those modular files of which the generated files are what they give while their neighbours are as on disk, as
        conversions without texts.
        """
        settings = self._disk.settings
        if settings.strict or settings.output_dir:  # any finding of an heir counts; copies lie elsewhere
            return {}
        folders = {os.path.dirname(one) for one in self._edited}
        for path in paths:
            if path not in self.required or os.path.dirname(path) in folders:
                continue
            self._heirs[path] = self._read_heir(path)
            if any(self.concerns(self._disk, path, one) for one in self.required[path] & self._edited):
                self._heirs[path] = None
        return {
            path: Conversion(path, {}, requires=self.required[path])
            for path, heir in self._heirs.items()
            if heir is not None
        }

    def concerns(self, library: Library, path: str, file: str) -> bool:
        """Whether a modular file reads something of a neighbour's file that differs, as a library reads it, from before."""
        heir = self._heirs.get(path)
        if heir is None or (file in self._edited and file not in self._before):
            return True
        try:
            old, new = self._older.module(file), library.module(file)
        except ConversionError:
            return True
        asked = file, library.hash(file)
        if asked not in self._differences:
            self._differences[asked] = _difference(old, new)
        changed = self._differences[asked]
        return changed is None or not changed.isdisjoint(_read(heir, old, new))

    def _read_heir(self, path: str) -> _Heir | None:
        """None for a file that may read more than the definitions of which it says the names."""
        with contextlib.suppress(ConversionError, OSError):
            return self._named_by(path)
        return None

    def _named_by(self, path: str) -> _Heir | None:
        module, text = self._disk.module(path), self._disk.text(path)
        words = frozenset(_WORD.findall(text))
        if "import *" in text or self._takes_handed_on(path, module):
            return None
        if "AttributeError" in words and self._reads_ancestors(path):
            return None
        with os.scandir(os.path.dirname(path)) as found:
            files = [*found]
        if any(one.is_symlink() for one in files):
            return None
        own = frozenset(module.definitions)
        texts = (self._disk.text(one.path) for one in files if modular_of(one.path, self._disk.settings) == path)
        defined = {name for one in texts for pair in _DEFINED.findall(one) for name in pair}
        model = _key(os.path.basename(os.path.dirname(path)))
        return _Heir(model, words, frozenset(map(_key, own)), frozenset(map(_key, defined - own - {""})))

    def _reads_ancestors(self, path: str) -> bool:
        """Whether ancestors of the neighbours' classes may lie in files that are edited or made anew, which a modular file
        reads that removes attributes: in other files of models, or where a file outside of models is edited.
        """
        settings = self._disk.settings
        models = models_folder_of(path, settings)
        if any(models_folder_of(one, settings) != models for one in self._edited):
            return True
        texts = (self._older.text_if_readable(one) or "" for one in self.required[path])
        imported = {one for text in texts for one in _IMPORTED.findall(text)}
        return any(neighbour_module(one, settings) and not is_sibling(one) for one in imported)

    def _takes_handed_on(self, path: str, module: Module) -> bool:
        """Whether a base is of a neighbour that only hands it on."""
        bases = {base for one in module.statements for base in one.bases}
        roots = {base.partition(".")[0] for base in bases}
        imported = [name for one in module.statements for name in one.imports if name.bound in roots]
        below = [one for one in imported if any(parts_below_models(x, self._disk.settings) for x in modules_of(one))]
        asked = {base.rpartition(".")[2] for base in bases for one in below if base.startswith(f"{one.bound}.")}
        asked |= {one.name for one in below if one.bound in bases}
        texts = [self._older.text_if_readable(one) or "" for one in self.required[path]]
        return not all(any(re.search(rf"^class {name}\b", text, re.MULTILINE) for text in texts) for name in asked)


def _difference(old: Module, new: Module) -> frozenset[str] | None:
    """The definitions of which the text differs; None where anything else does."""
    pairs = [*zip(old.statements, new.statements)]
    if len(old.statements) != len(new.statements) or old.header != new.header:
        return None
    found = set[str]()
    for one, other in pairs:
        if (one.text, one.lead) == (other.text, other.lead):
            continue
        if one.role not in _WITH_BODY or (one.role, one.names_bound) != (other.role, other.names_bound):
            return None
        found |= one.names_bound
    read = {name for one in old.statements if one.role not in (*_WITH_BODY, Role.IMPORT) for name in one.uses}
    return frozenset(found) if found.isdisjoint(read) else None


def _read(heir: _Heir, old: Module, new: Module) -> set[str]:
    """The definitions of a neighbour that an heir reads."""
    model = _key(os.path.basename(os.path.dirname(old.path)))
    starts = {name for name in old.definitions if name in heir.words or _is_copied(name, model, heir)}

    def needed(name: str) -> Iterator[str]:
        for module in (old, new) if name != "__all__" else ():
            words = (*_WORD.findall(module.definitions[name].text), *module.registered.get(name, ()))
            for one in words:
                if one in old.definitions and (
                    one in starts or heir.model + _key(one).replace(model, "", 1) not in heir.own
                ):
                    yield one

    return reached(starts, needed)


def _is_copied(name: str, model: str, heir: _Heir) -> bool:
    """Whether a definition of a neighbour may stand in a generated file of the heir, with whatever prefix."""
    found = _LAST_WORD.search(name)
    last = _key(found[0]) if found is not None else ""
    return model in last or any(one.endswith(last) for one in heir.copied)
