"""Where a line comes from, through all neighbours, and where a line of a modular file ends up."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from modular_converter.check.compare import compare, describe
from modular_converter.convert.batch import Run
from modular_converter.convert.emit.banner import is_generated
from modular_converter.convert.source.library import Library
from modular_converter.diagnostics import ConversionError, Location
from modular_converter.files.arguments import is_modular_name
from modular_converter.files.generated_files import path_of_generated
from modular_converter.provenance.generated import line_sources
from modular_converter.provenance.records import LineRange, LineSource
from modular_converter.rules import generated_file_orphaned, unknown_line
from modular_converter.settings.parent_folders import is_below, project_above
from modular_converter.settings.values import Settings


class Kind(enum.Enum):
    """The kinds of file that a line may be asked of."""

    MODULAR = "modular"
    GENERATED = "generated"
    FLAT = "flat"
    """Written by hand, and no modular file."""


@dataclass(frozen=True)
class TracedLines:
    """Lines of a file, with the lines that they come from in turn."""

    place: LineRange
    kind: Kind
    texts: tuple[str, ...]
    """The lines as the file has them."""
    origins: tuple[TracedLines, ...] = ()
    definition: str = ""
    """Of generated lines: the definition that they belong to."""

    @property
    def hands(self) -> int:
        """The number of neighbours that the lines have come through."""
        return max((one.hands + (one.kind is not Kind.MODULAR) for one in self.origins), default=0)


@dataclass(frozen=True)
class Destination:
    """Lines of a generated file that come from a line of its modular file."""

    place: LineRange
    definition: str
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What there is to say about one line."""

    line: TracedLines
    destinations: tuple[Destination, ...] = ()
    """Of a line of a modular file: where it ends up."""


@dataclass(frozen=True)
class Tracer:
    """Answers questions about the lines of one project. Each modular file is converted once, when it is needed."""

    settings: Settings
    library: Library
    known: dict[str, dict[str, list[LineSource]]] = field(default_factory=dict)

    def where(self, path: str, line: int) -> Answer:
        """Tell where a line comes from or, of a modular file, where it ends up.

        Args:
            path: absolute path of the file.
            line: the line, from 1.

        Raises `ConversionError` for a file that cannot be read, a line that it does not have, and for a generated file,
        of this model or of a neighbour on the way, that is not what its modular file gives: its lines would mislead.
        """
        lines = self.library.text(path).split("\n")
        count = len(lines) - (not lines[-1])
        if not 0 < line <= count:
            raise ConversionError(unknown_line.diagnose(Location(path, max(line, 1)), count))
        origin = self.origin(LineRange(path, line, line))
        if origin.kind is not Kind.MODULAR:
            return Answer(origin)
        return Answer(origin, tuple(self.destinations(path, line)))

    def origin(self, place: LineRange) -> TracedLines:
        """Some lines with all that they come from."""
        text = self.library.text(place.path)
        texts = tuple(text.split("\n")[place.first - 1 : place.last])
        if is_modular_name(os.path.basename(place.path)):
            return TracedLines(place, Kind.MODULAR, texts)
        if not is_generated(text):
            return TracedLines(place, Kind.FLAT, texts)
        sources = self._sources_of(place.path, is_generated(text))[place.first - 1 : place.last]
        places = dict.fromkeys(one for source in sources for one in source.places)
        definition = next((source.definition for source in sources if source.definition), "")
        return TracedLines(place, Kind.GENERATED, texts, tuple(map(self.origin, places)), definition)

    def destinations(self, modular: str, line: int) -> list[Destination]:
        """The lines of all generated files that come from a line of a modular file."""
        found = []
        for path, sources in sorted(self._sources(modular).items()):
            target = path_of_generated(path, self.settings)
            texts = self.library.text(target).split("\n")
            numbers = [number for number, source in enumerate(sources, 1) if _is_from(source, modular, line)]
            for first, last in _runs(numbers):
                place = LineRange(target, first, last)
                found.append(Destination(place, sources[first - 1].definition, tuple(texts[first - 1 : last])))
        return found

    def _sources_of(self, path: str, named: str) -> list[LineSource]:
        """The sources of the lines of a generated file, whose banner names its modular file."""
        folder = os.path.dirname(path)
        beside = os.path.join(folder, os.path.basename(named))
        project = project_above(folder)
        in_project = os.path.normpath(os.path.join(project, *named.split("/")))  # for files in an output folder
        places = [beside, in_project] if is_below(in_project, project) else [beside]
        modular = next((one for one in places if self.library.exists(one)), None)
        if modular is None:
            raise ConversionError(generated_file_orphaned.diagnose(Location(path), named, "does not exist"))
        found = {path_of_generated(one, self.settings): some for one, some in self._sources(modular).items()}
        if path not in found:
            raise ConversionError(generated_file_orphaned.diagnose(Location(path), named, "no longer gives this file"))
        return found[path]

    def _sources(self, modular: str) -> dict[str, list[LineSource]]:
        if modular not in self.known:
            (conversion,) = Run(self.settings, workers=1).convert([modular])
            if conversion.failed:
                raise ConversionError(*(one for one in conversion.diagnostics if one.is_error))
            stale, unreadable = compare([conversion], self.settings)
            if stale or unreadable:
                raise ConversionError(*unreadable, *(one.diagnostic for one in describe(stale)))
            self.known[modular] = line_sources(modular, conversion.files, self.library)
        return self.known[modular]


def _is_from(source: LineSource, path: str, line: int) -> bool:
    return any(place.path == path and place.first <= line <= place.last for place in source.places)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in order as runs: 3, 4, 5, 9 -> (3, 5), (9, 9)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
