"""The definitions that marks name: found in the sources of the library, which are read and never imported."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE, ConversionError, did_you_mean
from modular_converter.marks.units import DefinitionLines, dedented, definition_places
from modular_converter.settings.parent_folders import upwards


LONGEST = 1000
"""The most characters of a dotted name: for each of its parts a module is searched."""


class NotFoundError(LookupError):
    """Raised for a definition that does not exist; the message names the missing part."""


@dataclass(frozen=True)
class Sources:
    """The modules that marks name, each read and parsed once."""

    library: Library
    _places: dict[str, list[DefinitionLines]] = field(default_factory=dict)
    """File -> its definitions."""

    def texts(self, dotted: str, path: str) -> tuple[str, ...]:
        """The texts of the definitions of a dotted name, mostly one; a property has one for each accessor.

        Args:
            dotted: `transformers.models.bert.modeling_bert.BertLayer.forward`.
            path: the file with the mark, which lies in the same library.

        Raises `NotFoundError`.
        """
        for root in self._roots(path, dotted.partition(".")[0]):
            if found := self._in(root, dotted):
                return found
        raise NotFoundError(self._reason(dotted, path))

    def is_at(self, dotted: str, path: str, name: str) -> bool:
        """Whether a dotted name means the definition `name` of the file at `path` itself."""
        roots = self._roots(path, dotted.partition(".")[0])
        return any(self._module(root, dotted) == (path, name.split(".")) for root in roots)

    def _roots(self, path: str, package: str) -> Iterator[str]:
        """The folders that may be the package: beside its models, and the one that an import would mean."""
        folder = os.path.dirname(path)
        models = (os.path.dirname(one) for one in upwards(folder) if os.path.basename(one) == "models")
        found = next(models, None), self.library.find_package(package, folder)
        yield from (one for one in found if one is not None)

    def _in(self, root: str, dotted: str) -> tuple[str, ...]:
        module, names = self._module(root, dotted)
        text = self.library.text_if_readable(module) if names else None
        if text is None:
            return ()
        name = ".".join(names)
        try:
            places = [one for one in self.places(module) if one.name == name]
        except UNPARSABLE:
            return ()
        return tuple(dedented(text, one.first, one.last) for one in places)

    def places(self, path: str) -> list[DefinitionLines]:
        """The definitions of a file. Raises what `ast.parse` does for a file that is not Python."""
        if path not in self._places:
            self._places[path] = definition_places(self.library.text(path))
        return self._places[path]

    def _module(self, root: str, dotted: str) -> tuple[str, list[str]]:
        """The file of the longest part of a dotted name that is a module, and the rest of the name."""
        parts = dotted.split(".")[1:] if len(dotted) <= LONGEST else []
        for length in range(len(parts), 0, -1):
            stem = os.path.join(root, *parts[:length])
            if file := self.library.resolver.file_of_stem(stem):
                return file, parts[length:]
        return "", []

    def _reason(self, dotted: str, path: str) -> str:
        for root in self._roots(path, dotted.partition(".")[0]):
            module, names = self._module(root, dotted)
            if names and not (len(names) > 1 and os.path.basename(module) == "__init__.py"):
                try:
                    known = [*self.library.module(module).definitions]
                except ConversionError:
                    return f"{os.path.basename(module)} cannot be read"
                hint = did_you_mean(names[0], known).strip()
                return f"{os.path.basename(module)} has no `{'.'.join(names)}`" + (f". {hint}" if hint else "")
        return "there is no such module"
