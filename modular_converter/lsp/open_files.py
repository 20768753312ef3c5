"""The texts that an editor holds, and the conversions of the modular files among them, each kept until something that it
has read changes. Nothing is written.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import has_modular_name
from modular_converter.files.read import given_text
from modular_converter.findings import ConversionError
from modular_converter.provenance.generated import LineSource, line_sources
from modular_converter.settings.load import load_settings_of, profile_settings
from modular_converter.settings.values import Settings


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
        return Library(project_settings(path), self.overlay())

    def conversion(self, modular: str) -> Conversion:
        """The conversion of a modular file, whether it is open or not."""
        if modular not in self._known:
            self._known[modular] = _Known(self._converted(modular))
        return self._known[modular].conversion

    def _converted(self, modular: str) -> Conversion:
        if modular in self.refused:
            return Conversion(modular, {}, self.refused[modular].findings)
        try:
            settings = project_settings(modular)
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
            library = Library(project_settings(modular), self.overlay(without=modular))
            known.sources = line_sources(modular, conversion.files, library)
        return known.sources


def _settings_for_reading(path: str) -> Settings:
    """The settings of a file, or those of the profile: wrong settings are told by its conversion."""
    try:
        return project_settings(path)
    except ConversionError:
        return profile_settings()


def project_settings(path: str) -> Settings:
    """The settings of the project that holds a file. Raises `ConversionError` for wrong ones."""
    return load_settings_of([path])
