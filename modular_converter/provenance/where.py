"""Where a line comes from, through all neighbours, and where a line of a modular file ends up, through all heirs."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.check.compare import compare
from modular_converter.check.conversions import files_required, find_conversions
from modular_converter.check.differences import describe
from modular_converter.convert.emit.banner import is_generated
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import discover
from modular_converter.files.write import path_of_generated
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.provenance.generated import LineRange, LineSource, line_sources
from modular_converter.rules import input_files, stale_files
from modular_converter.settings.disk import is_below, project_above
from modular_converter.settings.values import Settings, is_modular, models_folder_of


class Kind(enum.Enum):
    """The kinds of file whose lines can be looked up."""

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
    def neighbours(self) -> int:
        """The number of neighbours that the lines have come through."""
        return max((one.neighbours + (one.kind is not Kind.MODULAR) for one in self.origins), default=0)


@dataclass(frozen=True)
class Destination:
    """Lines of a generated file that come from a line of a modular file."""

    place: LineRange
    definition: str
    texts: tuple[str, ...]
    neighbours: int = 0
    """The number of generated files of other models that the line comes through."""


@dataclass(frozen=True)
class Answer:
    """The answer for one line."""

    line: TracedLines
    destinations: tuple[Destination, ...] = ()
    """For a line of a modular file: its places in its own generated files and in those of its heirs."""
    findings: tuple[Finding, ...] = ()
    """Why some heirs could not be followed."""


Lines = Mapping[str, set[int]]
"""File -> lines of it."""


@dataclass(frozen=True)
class Tracer:
    """Answers questions about the lines of one project. Each modular file is converted once, when it is needed."""

    settings: Settings
    library: Library
    known: dict[str, dict[str, list[LineSource]]] = field(default_factory=dict)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    """Modular file -> the files that it takes from; filled when heirs are first asked for."""
    cache: str | None = None
    """The folder of the cache of the check; None to go without."""

    def where(self, path: str, line: int) -> Answer:
        """Tell where a line comes from or, of a modular file, where it ends up.

        Args:
            path: absolute path of the file.
            line: the line, from 1.

        Raises `ConversionError` for a file that cannot be read, a line that it does not have, and for a generated file,
        of this model or of a neighbour in between, that differs from its conversion: its lines would mislead. Such
        heirs are left out with a finding.
        """
        lines = self.library.text(path).split("\n")
        count = len(lines) - (not lines[-1])
        if not 0 < line <= count:
            raise ConversionError(input_files.unknown_line(Location(path, max(line, 1)), count))
        origin = self.origin(LineRange(path, line, line))
        if origin.kind is not Kind.MODULAR:
            return Answer(origin)
        found, findings = self._destinations(path, line)
        return Answer(origin, tuple(found), tuple(findings))

    def origin(self, place: LineRange) -> TracedLines:
        """Some lines with all their sources."""
        text = self.library.text(place.path)
        texts = tuple(text.split("\n")[place.first - 1 : place.last])
        if is_modular(place.path, self.settings):
            return TracedLines(place, Kind.MODULAR, texts)
        if not is_generated(text):
            return TracedLines(place, Kind.FLAT, texts)
        sources = self._sources_of(place.path, is_generated(text))[place.first - 1 : place.last]
        places = dict.fromkeys(one for source in sources for one in source.places)
        definition = next((source.definition for source in sources if source.definition), "")
        return TracedLines(place, Kind.GENERATED, texts, tuple(map(self.origin, places)), definition)

    def _destinations(self, modular: str, line: int) -> tuple[list[Destination], list[Finding]]:
        """The lines of all generated files that come from a line of a modular file, and why heirs are not followed.

        Heirs are followed line by line: a modular file is converted if it takes from a file that the line has reached.
        """
        self._sources(modular)
        found: list[Destination] = []
        findings: list[Finding] = []
        seen: dict[str, set[int]] = {modular: {line}}
        reached: Lines = {modular: {line}}
        files, neighbours = [modular], 0
        while files:
            more: dict[str, set[int]] = {}
            for path, numbers in (one for file in files for one in self._reached_in(file, reached)):
                more[path] = numbers - seen.setdefault(path, set())
                seen[path] |= numbers
                found += self._as_destinations(path, sorted(more[path]), neighbours)
            reached, neighbours = {path: numbers for path, numbers in more.items() if numbers}, neighbours + 1
            files, failed = self._heirs(modular, reached)
            findings += (one for one in failed if one not in findings)
        return found, findings

    def _reached_in(self, modular: str, reached: Lines) -> Iterator[tuple[str, set[int]]]:
        """The lines of the generated files of one modular file that come from some lines."""
        for path, sources in sorted(self.known[modular].items()):
            yield path, {number for number, source in enumerate(sources, 1) if _is_from(source, reached)}

    def _as_destinations(self, path: str, numbers: Sequence[int], neighbours: int) -> Iterator[Destination]:
        target = path_of_generated(path, self.settings)
        texts = self.library.text(target).split("\n")
        (sources,) = (one[path] for one in self.known.values() if path in one)
        for first, last in _runs(numbers):
            place = LineRange(target, first, last)
            yield Destination(place, sources[first - 1].definition, tuple(texts[first - 1 : last]), neighbours)

    def _heirs(self, modular: str, reached: Lines) -> tuple[list[str], list[Finding]]:
        """The modular files that take from one of some files, converted, and why others cannot be."""
        if not reached:
            return [], []
        if not self.needs:
            paths = discover([models_folder_of(modular, self.settings)], None).paths
            self.needs.update(files_required(paths, self.settings, self.cache, self.library))
        heirs = [path for path, needed in self.needs.items() if not needed.isdisjoint(reached)]
        findings = self._convert([path for path in heirs if path not in self.known])
        return [path for path in heirs if path in self.known], findings

    def _sources_of(self, path: str, named: str) -> list[LineSource]:
        """The sources of the lines of a generated file, whose banner names its modular file."""
        folder = os.path.dirname(path)
        beside = os.path.join(folder, os.path.basename(named))
        project = project_above(folder)
        in_project = os.path.normpath(os.path.join(project, *named.split("/")))  # for files in an output folder
        places = [beside, in_project] if is_below(in_project, project) else [beside]
        modular = next((one for one in places if self.library.exists(one)), None)
        if modular is None:
            raise ConversionError(stale_files.generated_file_orphaned(Location(path), named, "does not exist"))
        found = {path_of_generated(one, self.settings): some for one, some in self._sources(modular).items()}
        if path not in found:
            raise ConversionError(
                stale_files.generated_file_orphaned(Location(path), named, "no longer generates this file")
            )
        return found[path]

    def _sources(self, modular: str) -> dict[str, list[LineSource]]:
        if modular not in self.known and (findings := self._convert([modular])):
            raise ConversionError(*findings)
        return self.known[modular]

    def _convert(self, modular: Sequence[str]) -> list[Finding]:
        """Convert some modular files together; the findings say which of them cannot be used, and why."""
        found: list[Finding] = []
        conversions = find_conversions(modular, replace(self.settings, workers=1), self.cache)
        for conversion in conversions.all:
            findings = [one for one in conversion.findings if one.is_error]
            if not conversion.failed and conversion.path in conversions.made:
                stale, unreadable = compare([conversion], self.settings)
                differences = describe(stale, self.settings)
                findings = [*unreadable, *(one for difference in differences for one in difference.findings)]
            found += findings
            if not findings:
                self.known[conversion.path] = line_sources(conversion.path, conversion.files, self.library)
        return found


def _is_from(source: LineSource, lines: Lines) -> bool:
    return any(not lines.get(one.path, set()).isdisjoint(range(one.first, one.last + 1)) for one in source.places)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in order as runs: 3, 4, 5, 9 -> (3, 5), (9, 9)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found
