"""Where each line of the files that a modular file generates comes from: lines of definitions as they are read, and of
merged classes as the plan of the merge has them; on from there through all neighbours, and from a line of a modular file through
all heirs.
"""

from __future__ import annotations

import enum
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from modular_converter.check.compare import compare
from modular_converter.check.conversions import files_required, find_conversions
from modular_converter.check.differences import describe
from modular_converter.convert.examine.finished import FinishedConversion
from modular_converter.convert.inherit.build import BuiltClass, rename_class
from modular_converter.convert.inline.collect import GeneratedFile
from modular_converter.convert.pipeline import first_steps
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import without_copy_comments
from modular_converter.facts import GeneratedDefinition
from modular_converter.files.arguments import discover
from modular_converter.files.write import is_generated, path_of_generated, without_banner
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.model.class_blocks import ClassSpan, SourceLines, block_lines
from modular_converter.model.index import index_module
from modular_converter.model.module import Module, Statement
from modular_converter.reporting.diffs import matching_blocks
from modular_converter.rules import input_files, stale_files
from modular_converter.settings.disk import is_below, project_above
from modular_converter.settings.values import Settings, is_modular, models_folder_of


_WORD = re.compile(r"\w+|[^\w\s]")
LAYOUT = frozenset("'\"(),\\;")
"""The tokens that a formatter adds, removes or exchanges."""


def words_of(line: str) -> tuple[str, ...]:
    """The words and operators of one line, without what a formatter may add or remove."""
    return tuple(text for text in _WORD.findall(line) if text not in LAYOUT)


def align(new: Sequence[str], old: Sequence[str]) -> list[list[int]]:
    """For each line of `new`, the lines of `old` that its words come from, in order, from 0.

    A line without words belongs to the line above it. A line whose words are nowhere in `old` has none.
    """
    found: list[dict[int, None]] = [{} for _ in new]
    for line, source in _pairs(new, old):
        found[line].setdefault(source)
    _drop_bare(found, new, old)
    _find_moved(found, new, old)
    _follow(found, new, old)
    return [list(one) for one in found]


def _pairs(new: Sequence[str], old: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The lines of the words that agree, in their order in both texts."""
    ours, theirs = ([(word, line) for line, text in enumerate(some) for word in words_of(text)] for some in (new, old))
    for block in matching_blocks([word for word, _ in ours], [word for word, _ in theirs]):
        yield from ((ours[block.a + step][1], theirs[block.b + step][1]) for step in range(block.size))


def _drop_bare(found: list[dict[int, None]], new: Sequence[str], old: Sequence[str]) -> None:
    """Take the source from a line that has words, but nothing of it than an operator: the `@` of another decorator."""
    for line, sources in zip(new, found):
        names = {*filter(str.isidentifier, words_of(line))}
        if names and sources and names.isdisjoint(word for place in sources for word in words_of(old[place])):
            sources.clear()


def _find_moved(found: list[dict[int, None]], new: Sequence[str], old: Sequence[str]) -> None:
    """Give a line without a source the only old line that begins like it and has all its words.

    A formatter sorts imports, and makes two of `import a, b`.
    """
    missing = [number for number, sources in enumerate(found) if not sources and words_of(new[number])]
    there = [words_of(line) for line in old] if missing else []
    for number in missing:
        wanted = words_of(new[number])
        places = [place for place, some in enumerate(there) if some[:1] == wanted[:1] and {*wanted} <= {*some}]
        if len(places) == 1:
            found[number].setdefault(places[0])


def _follow(found: list[dict[int, None]], new: Sequence[str], old: Sequence[str]) -> None:
    """Give a line without words the line below the source of the line above, where it is the same, or that source."""
    for number, sources in enumerate(found):
        if sources or words_of(new[number]):
            continue
        above = list(found[number - 1]) if number else [-1]
        if not above:
            continue
        below = above[-1] + 1
        if below < len(old) and not words_of(old[below]) and old[below].strip() == new[number].strip():
            sources.setdefault(below)
        elif new[number].strip() and above[-1] >= 0:
            sources.setdefault(above[-1])


def same_names(new: Sequence[str], old: Sequence[str]) -> list[list[int]]:
    """For each line of `new`, the lines of `old`, from 0, that have one of its names: a list is put in any order."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(old):
        for word in filter(str.isidentifier, words_of(line.partition("#")[0])):
            places.setdefault(word, []).append(number)
    found = [sorted({place for word in words_of(line) for place in places.get(word, ())}) for line in new]
    last = len(old) - 1
    end = {*words_of(old[last].partition("#")[0])}
    return [one or ([last] if end.intersection(words_of(line)) else []) for one, line in zip(found, new)]


class LineRange(NamedTuple):
    """Consecutive lines of a file."""

    path: str
    first: int
    last: int
    """From 1; the same as `first` for one line."""


class LineSource(NamedTuple):
    """Where one line of a generated file comes from."""

    places: tuple[LineRange, ...] = ()
    """Lines of the modular file and of its neighbours; several where a line was merged. None for a line that the
    converter has made: the notice on top, an import, a blank line."""
    definition: str = ""
    """The definition of the generated file that the line belongs to."""


Lines = list[tuple[LineRange, ...]]
"""For each line of a text, where it comes from."""


def joined(places: Iterable[LineRange]) -> tuple[LineRange, ...]:
    """The places in order, without repetitions; adjacent places of one file are joined."""
    found: list[LineRange] = []
    for place in places:
        near = next((number for number, one in enumerate(found) if _touch(one, place)), None)
        if near is None:
            found.append(place)
        else:
            one = found[near]
            found[near] = LineRange(one.path, min(one.first, place.first), max(one.last, place.last))
    return tuple(found)


def _touch(one: LineRange, other: LineRange) -> bool:
    return one.path == other.path and one.first <= other.last + 1 and other.first <= one.last + 1


OWN_STATEMENTS = ("__all__", "__getattr__")
"""The statements of the modular file of which each generated file has a part."""


def line_sources(modular: str, texts: Mapping[str, str], library: Library) -> dict[str, list[LineSource]]:
    """Where the lines of generated files come from: path -> one record for each line.

    Args:
        modular: absolute path of the modular file.
        texts: the formatted texts that its conversion gives, by path.

    Raises `ConversionError` where the modular file cannot be converted.
    """
    finished = first_steps(modular, texts.values(), library)
    tracer = _ConversionTracer(finished)
    folder = os.path.dirname(modular)
    files = {os.path.join(folder, file.name): file for file in finished.files}
    return {path: tracer.file(files[path], text) for path, text in texts.items()}


@dataclass(frozen=True)
class _ConversionTracer:
    """A finished conversion, asked about its lines."""

    finished: FinishedConversion

    @property
    def modular(self) -> str:
        return self.finished.target.path

    @cached_property
    def module(self) -> Module:
        return self.finished.target.module

    def file(self, file: GeneratedFile, text: str) -> list[LineSource]:
        lines = text.split("\n")[: text.count("\n")]
        found = [LineSource()] * len(lines)
        formatted = index_module(text, file.name)
        for number, places in enumerate(self._header(formatted.header)):
            found[number] = LineSource(places)
        for definition in file.ordered:
            statement = formatted.definitions.get(definition.name)
            if statement is not None:
                self._place(statement, self._emitted(definition), definition.lead + definition.text, found)
        for name in OWN_STATEMENTS:
            statement, own = formatted.definitions.get(name), self.module.definitions.get(name)
            if statement is not None and own is not None and name not in file.definitions:
                self._place(statement, self._own(own), own.lead + own.text, found, in_order=name != "__all__")
        return found

    def _place(
        self, statement: Statement, sources: Lines, text: str, found: list[LineSource], *, in_order: bool = True
    ) -> None:
        """Assign the sources of a definition's lines to the lines of the formatted definition."""
        numbers = [one[0].first for one in (*lead_lines(statement, "", ""), *text_lines(statement, "", ""))]
        match = align if in_order else same_names
        aligned = match((statement.lead + statement.text).split("\n"), text.split("\n"))
        for number, lines in zip(numbers, aligned):
            places = joined(place for line in lines if line < len(sources) for place in sources[line])
            if places and number <= len(found):
                found[number - 1] = LineSource(places, statement.name)

    def _header(self, header: str) -> Lines:
        """The comments below the banner, as far as the modular file or its first neighbour has them."""
        lines = without_banner(header, self.finished.library.settings).split("\n")[:-1]
        found: Lines = [()] * len(lines)
        modules = [self.module, *(one.neighbour.module for one in self.finished.renamed.values())][:2]
        for module in modules:
            own = without_banner(module.header, self.finished.library.settings).split("\n")[:-1]
            above = module.header.count("\n") - len(own) + 1
            for number, sources in enumerate(align(lines, own)):
                if not found[number]:
                    found[number] = tuple(LineRange(module.path, above + one, above + one) for one in sources)
        return [*[()] * (header.count("\n") - len(lines)), *found]

    def _emitted(self, definition: GeneratedDefinition) -> Lines:
        """The lines of a definition as the steps of the conversion give it, those above it included."""
        built = self.finished.classes.get(definition.name)
        if built is not None and built.plan and built.parent is not None:
            return self._merged(built)
        if definition.origin.path == self.modular:
            own = built.statement if built is not None else self.module.definitions[definition.name]
            lines, old = ([*text.removesuffix("\n").split("\n")] for text in (definition.text, own.text))
            return lead_lines(own, self.modular, "") + _by_words(lines, old, text_lines(own, self.modular, ""))
        return self._copied(self.finished.neighbours.at_path[definition.origin.path], definition.name)

    def _own(self, statement: Statement) -> Lines:
        return lead_lines(statement, self.modular, "") + text_lines(statement, self.modular, "")

    def _copied(self, dotted: str, name: str) -> Lines:
        """The lines of a neighbour's definition. Lines that name the origin of a copy are dropped by the renaming."""
        renamed = self.finished.renamed[dotted]
        original, comment = renamed.definitions.original(name), renamed.definitions.renamer.copy_comment
        path = renamed.neighbour.path
        return lead_lines(original, path, comment) + text_lines(original, path, comment)

    def _merged(self, built: BuiltClass) -> Lines:
        assert built.parent is not None
        name, parent_text = built.parent.name, built.parent.text
        inherited = self._copied(built.neighbour, name)
        above = built.parent.lead.count("\n")
        if name != built.name:
            parent_text = rename_class(parent_text, name, built.name, self.finished.target.names)
        own = text_lines(built.statement, self.modular, "")
        halves = Halves(_as_merged(built.statement.text, own), _as_merged(parent_text, inherited[above:]))
        return inherited[:above] + merged_lines(built.plan, halves)


def _as_merged(text: str, places: Lines) -> tuple[Sequence[str], Lines]:
    """A class as the merge takes it apart: with a body on lines of its own, indented by four spaces."""
    lines = "".join(block_lines(text)[1]).removesuffix("\n").split("\n")
    return lines, _by_words(lines, text.removesuffix("\n").split("\n"), places)


def _by_words(lines: Sequence[str], old: Sequence[str], places: Lines) -> Lines:
    """The places of lines by those of the old ones, which are aligned by their words if their number is another."""
    if len(lines) == len(old):
        return places
    return [joined(place for line in found for place in places[line]) for found in align(lines, old)]


class Halves(NamedTuple):
    """The lines of the class of the modular file and of its renamed parent, each with their places."""

    own: tuple[Sequence[str], Lines]
    parent: tuple[Sequence[str], Lines]

    def at(self, source: SourceLines) -> tuple[Sequence[str], Lines]:
        """The lines of a part, and where they come from."""
        lines, places = self.own if source.is_own else self.parent
        return lines[source.first - 1 : source.last], places[source.first - 1 : source.last]


def merged_lines(plan: Sequence[ClassSpan], halves: Halves) -> Lines:
    """Where each line of a merged class comes from."""
    return [places for span in plan for places in _from_any(span, halves)]


def _from_any(span: ClassSpan, halves: Halves) -> Lines:
    """The lines of a span: paired one by one if there are as many sources, else aligned by their words."""
    lines = span.text.removesuffix("\n").split("\n")
    if len(span.sources) == 1:
        _, places = halves.at(span.sources[0])
        if len(places) == len(lines):
            return places
    found: Lines = [()] * len(lines)
    lacking = [Counter(words_of(line)) for line in lines]
    for source in span.sources:
        texts, places = halves.at(source)
        for number, sources in enumerate(align(lines, texts)):
            if lacking[number] or not found[number]:
                there = sum((Counter(words_of(texts[source])) for source in sources), Counter[str]())
                if not found[number] or lacking[number] & there:
                    more = (place for source in sources for place in places[source])
                    found[number] = joined((*found[number], *more))
                    lacking[number] -= there
    return found


def lead_lines(statement: Statement, path: str, copy_comment: str) -> Lines:
    """Where the lines above a definition come from, of which those that name the origin of a copy are left out."""
    first = statement.line - statement.lead.count("\n")
    return _kept(statement.lead, [first + number for number in range(statement.lead.count("\n"))], path, copy_comment)


def text_lines(statement: Statement, path: str, copy_comment: str) -> Lines:
    """Where the lines of a definition come from, with the changes that are joined to it."""
    lines = [*map(statement.line_at, range(statement.text.count("\n") + 1))]
    return _kept(statement.text, lines, path, copy_comment)


def _kept(text: str, numbers: list[int], path: str, copy_comment: str) -> Lines:
    """The places of the lines that stay when the comments about copies go."""
    places: Lines = [(LineRange(path, number, number),) for number in numbers]
    kept = without_copy_comments(text, copy_comment)
    if kept == text:
        return places
    found: Lines = []
    rest = iter(kept.split("\n"))
    wanted = next(rest, None)
    for line, place in zip(text.split("\n"), places):
        if line == wanted:
            found.append(place)
            wanted = next(rest, None)
    return found


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


LinesByFile = Mapping[str, set[int]]
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
        reached: LinesByFile = {modular: {line}}
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

    def _reached_in(self, modular: str, reached: LinesByFile) -> Iterator[tuple[str, set[int]]]:
        """The lines of the generated files of one modular file that come from some lines."""
        for path, sources in sorted(self.known[modular].items()):
            yield path, {number for number, source in enumerate(sources, 1) if is_from(source, reached)}

    def _as_destinations(self, path: str, numbers: Sequence[int], neighbours: int) -> Iterator[Destination]:
        target = path_of_generated(path, self.settings)
        texts = self.library.text(target).split("\n")
        (sources,) = (one[path] for one in self.known.values() if path in one)
        for first, last in _runs(numbers):
            place = LineRange(target, first, last)
            yield Destination(place, sources[first - 1].definition, tuple(texts[first - 1 : last]), neighbours)

    def _heirs(self, modular: str, reached: LinesByFile) -> tuple[list[str], list[Finding]]:
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


def is_from(source: LineSource, lines: LinesByFile) -> bool:
    """Whether a line of a generated file comes from one of some lines."""
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
