"""Convert many modular files: in order of dependency, in several processes when that pays, formatted together."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from modular_converter.convert.conversion import EXISTS, Conversion
from modular_converter.convert.emit.format import FormatResult, format_files
from modular_converter.convert.examine.report import examine
from modular_converter.convert.pipeline import convert
from modular_converter.convert.processes import Progress, Workers
from modular_converter.convert.readings import Readings
from modular_converter.convert.schedule import Schedule, cycles, dependencies, required_files
from modular_converter.convert.silence import with_fixes, with_selected_findings, without_silenced
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import ConversionError, Finding, Location, locate_word
from modular_converter.rules import neighbour_imports, tool_errors
from modular_converter.settings.values import Settings


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the cyclic garbage collector: syntax trees are many objects and hold no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def convert_all(paths: Sequence[str], workers: Workers[Library], progress: Progress) -> list[Conversion]:
    """Convert files whose neighbours can be read, in their order. `progress` is called with the number of files converted
    since the last call.
    """
    return workers.do(_convert_each, paths, progress)


def _convert_each(paths: Iterable[str], library: Library, progress: Progress) -> list[Conversion]:
    conversions = []
    for path in paths:
        conversions.append(convert_safely(path, library))
        progress(1)
    return conversions


def convert_safely(path: str, library: Library) -> Conversion:
    """`pipeline.convert`; an error of the tool itself becomes a finding that carries its traceback."""
    seen = Observations()
    try:
        return convert(path, library.observing(seen))
    except Exception as error:
        finding = tool_errors.internal_error(
            _place_of(seen.class_name, path, library), error, class_name=seen.class_name
        )
        return Conversion(path, {}, (finding,), reads=seen.reads)


def _place_of(class_name: str, path: str, library: Library) -> Location:
    """Where a class of a modular file stands; the start of the file for no class."""
    try:
        return locate_word(path, class_name, library.text(path)) if class_name else Location(path)
    except ConversionError:
        return Location(path)


class KeptConversions(Protocol):
    """Conversions of earlier runs, with their texts, by the content of all that they depend on."""

    def find(self, path: str, library: Library) -> Conversion | None:
        """The conversion of a modular file, if all that it depends on is what the library reads now."""


@dataclass
class Run:
    """One run over a set of modular files."""

    settings: Settings
    overlay: dict[str, str] = field(default_factory=dict)
    """Texts that this run reads in place of files on disk; the texts that it generates are added."""
    workers: int = 0
    """Processes at most; 0 lets the run decide."""
    progress: Progress = lambda converted: None
    """Called with the number of files converted since the last call."""
    format: Callable[[Mapping[str, str], Settings], FormatResult] = format_files
    """How texts are formatted: `format_files`, or what gives the same."""
    read: Library | None = None
    """What has been read from the same files before, and need not be read again."""
    kept: KeptConversions | None = None
    """What earlier runs have made."""
    stale: Readings | None = None
    """Where most generated files are stale, so that a conversion before those of its neighbours would be in vain."""

    @without_collector()
    def convert(self, paths: Collection[str], known: Mapping[str, Conversion] | None = None) -> list[Conversion]:
        """Convert modular files, given as absolute paths; the results are sorted by path and formatted.

        Neighbours on disk are taken to be current. Where this run generates another text for a neighbour, the files
        that have read it are converted again, and see the new text.

        Args:
            known: conversions that hold for what is on disk; they are repeated only when this run changes a file that
                they have read.
        """
        known = known or {}
        given = dict(self.overlay)
        library = self.read.under(self.overlay) if self.read else Library(self.settings, self.overlay)
        required = {
            path: known[path].requires
            if path in known
            else (self.stale.required if self.stale else {}).get(path) or required_files(path, library)
            for path in sorted(set(paths))
        }
        needs = dependencies(required, self.settings)
        refused = _refuse_cycles(needs)
        done = {**known, **refused}
        concerns = functools.partial(self.stale.concerns, library) if self.stale else None
        speculates = not known and self.stale is None
        schedule = Schedule(required, needs, known, refused, library.exists, concerns, speculates=speculates)
        with Workers(library, self.workers) as workers:
            while ready := schedule.next_round():
                batch = [replace(one, requires=required[one.path]) for one in self._batch(ready, library, workers)]
                changed = self._lay_over(batch, done, given, library, workers)
                done.update({conversion.path: conversion for conversion in batch})
                schedule.settle(batch, changed, done)
        return [done[path] for path in sorted(done)]

    def _batch(self, paths: Sequence[str], library: Library, workers: Workers[Library]) -> list[Conversion]:
        """Convert files and format all results together, but for those that are kept."""
        kept = {path: one for path in paths if self.kept and (one := self.kept.find(path, library)) is not None}
        paths = [path for path in paths if path not in kept]
        conversions = convert_all(paths, workers, self.progress)
        by_settings: dict[int, list[Conversion]] = {}
        formattings = dict(enumerate(self.settings.formattings))
        numbers = {folder: number for number, (folder, _) in enumerate(self.settings.by_folder, 1)}
        for conversion in conversions:
            by_settings.setdefault(numbers.get(os.path.dirname(conversion.path), 0), []).append(conversion)
        finished = (self._format(some, formattings[number], library) for number, some in by_settings.items())
        made = [one for some in finished for one in some]
        return sorted((*made, *kept.values()), key=lambda one: one.path)

    def _format(self, conversions: Sequence[Conversion], settings: Settings, library: Library) -> list[Conversion]:
        """Format the texts of conversions, all by the same settings."""
        texts = {path: text for conversion in conversions for path, text in conversion.files.items()}
        try:
            result = self.format(texts, settings)
        except ConversionError as error:
            return [replace(one, files={}, findings=(*one.findings, *error.findings)) for one in conversions]
        return [self._finish(conversion, result, library) for conversion in conversions]

    def _finish(self, conversion: Conversion, result: FormatResult, library: Library) -> Conversion:
        """A conversion with its formatted texts and all its findings."""
        seen = Observations()
        examined = examine(conversion, result, library.observing(seen))
        findings = [_with_source(finding, library) for finding in (*conversion.findings, *examined)]
        findings.sort(key=lambda finding: finding.sort_key)
        text = library.text_if_readable(conversion.path) or ""
        findings = with_fixes(without_silenced(findings, conversion.path, text), conversion.path, text)
        failed = any(finding.is_error for finding in findings)
        end = "\n" if failed else library.line_end(conversion.path)  # generated files have those of their modular file
        files = {} if failed else {path: result.texts[path].replace("\n", end) for path in conversion.files}
        reads = _merged(
            conversion.reads, {path: at for path, at in seen.files.items() if path not in conversion.files}
        )
        finished = replace(conversion, files=files, findings=tuple(findings), reads=reads)
        return with_selected_findings(finished, self.settings)

    def _lay_over(
        self,
        batch: Sequence[Conversion],
        earlier: Mapping[str, Conversion],
        given: Mapping[str, str],
        library: Library,
        workers: Workers[Library],
    ) -> dict[str, str]:
        """Make the texts of a batch visible to their dependents; return the files that change, each with its source.

        A text of an earlier round that its modular file no longer gives, mostly because its conversion now fails, is
        withdrawn: it will never be on disk.

        Args:
            earlier: the conversions of earlier rounds, by modular file.
            given: the texts that the run was started with.
        """
        changed = {
            file: (conversion.path, text)
            for conversion in batch
            for file, text in conversion.files.items()
            if library.text_if_readable(file) != text.replace("\r\n", "\n")
        }
        gone = {
            file: one.path
            for one in batch
            if one.path in earlier
            for file in earlier[one.path].files
            if file not in one.files and library.overlay.get(file) != given.get(file)
        }
        restored = {file: given[file] for file in gone if file in given}
        workers.tell(_exchange, frozenset(gone), restored | {file: text for file, (_, text) in changed.items()})
        return {**gone, **{file: path for file, (path, _) in changed.items()}}


def _exchange(library: Library, gone: Collection[str], new: Mapping[str, str]) -> None:
    """Withdraw texts, and lay others over the files on disk."""
    library.take_back(gone)
    library.put(new)


def _merged(reads: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """The reads of two steps of a conversion, joined. The hash of a file replaces the note that it exists."""
    known = {path: at for path, at in reads.items() if at != EXISTS}
    return dict(sorted({**reads, **more, **known}.items()))


def _refuse_cycles(needs: Mapping[str, Collection[str]]) -> dict[str, Conversion]:
    """A failed conversion for each file on a cycle."""
    return {
        path: Conversion(path, {}, (neighbour_imports.cycle(Location(path), _from(members, path)),))
        for members in cycles(needs)
        for path in members
    }


def _from(members: tuple[str, ...], path: str) -> tuple[str, ...]:
    """A cycle as seen from one of its members."""
    start = members.index(path)
    return (*members[start:], *members[:start])


def _with_source(finding: Finding, library: Library) -> Finding:
    if finding.source_line or not library.exists(finding.location.path):
        return finding
    try:
        return finding.with_source(library.text(finding.location.path))
    except ConversionError:
        return finding
