"""Convert many modular files: in order of dependency, in several processes when that pays, formatted together. Processes keep
what they have read from one round of work to the next.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.formatters import Formatted
from modular_converter.convert.examine.report import examine
from modular_converter.convert.pipeline import convert
from modular_converter.convert.schedule import Readings, Schedule, cycles, dependencies, required_files
from modular_converter.convert.silence import with_fixes, with_selected_findings, without_silenced
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import EXISTS, Conversion, ConversionError, Finding, Location, locate_word
from modular_converter.rules import input_files, tool_errors
from modular_converter.settings.values import Settings


ITEMS_PER_PROCESS = {"fork": 2, "spawn": 12}
"""Fewer items than this do not justify a process: forking takes 0.03 s, spawning as long as converting three files."""
SHARES = 4
"""For each process in a round, so that none waits long for the others."""

Progress = Callable[[int], None]
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Workers(Generic[S]):
    """Processes with a copy each of something that they share. They are started once some work is worth it, and end with
    the context. What one of them reads while it works, it need not read again.
    """

    def __init__(self, shared: S, most: int) -> None:
        """
        Args:
            shared: what all work gets. This process uses it itself, too.
            most: processes at most; 0 stands for one a core.
        """
        self._shared, self._most = shared, most or os.cpu_count() or 1
        self._started: list[tuple[Any, Any]] = []
        """The processes, each with this end of its connection."""

    def __enter__(self) -> Workers[S]:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._started:
            process.terminate()
            process.join()
            connection.close()

    def do(
        self,
        work: Callable[[Iterable[T], S, Progress], list[R]],
        items: Sequence[T],
        progress: Progress = lambda done: None,
    ) -> list[R]:
        """The results for some items in their order.

        Args:
            work: a function of a module: the results for a share of the items, each of which holds every n-th of them,
                so that those of one level are spread.
            items: they can be pickled, as the results can.
            progress: called with the number of items done since the last call.

        Raises what the work raises, and `RuntimeError` for a process that has ended.
        """
        method = _start_method()
        processes = min(self._most, len(items) // ITEMS_PER_PROCESS[method])
        if processes <= 1:
            return work(items, self._shared, progress)
        from multiprocessing.connection import wait  # takes longer than converting a file

        self._start(processes, method)
        parts = min(processes * SHARES, len(items))
        waiting, running, found = iter(range(parts)), dict[Any, int](), dict[int, list[R]]()
        idle: list[Any] = [connection for _, connection in self._started[:processes]]
        while len(found) < parts:
            for connection, part in zip(idle, waiting):
                connection.send((work, items[part::parts]))
                running[connection] = part
            idle = wait([*running])
            for connection in idle:
                part = running.pop(connection)
                found[part] = _received(connection)
                progress(len(found[part]))
        return [found[number % parts][number // parts] for number in range(len(items))]

    def tell(self, change: Callable[..., None], *arguments: object) -> None:
        """Change what is shared in all processes: `change(shared, *arguments)`, a function of a module."""
        change(self._shared, *arguments)
        for _, connection in self._started:
            connection.send((change, None, *arguments))

    def _start(self, processes: int, method: str) -> None:
        import multiprocessing

        context = multiprocessing.get_context(method)
        while len(self._started) < processes:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, self._shared), daemon=True)  # type: ignore[attr-defined]
            process.start()
            there.close()  # so that the end of the process is seen here
            self._started.append((process, here))


def in_processes(
    work: Callable[[Iterable[T], S, Progress], list[R]],
    shared: S,
    items: Sequence[T],
    workers: int,
    progress: Progress,
) -> list[R]:
    """The results of one round of work, see `Workers`."""
    with Workers(shared, workers) as processes:
        return processes.do(work, items, progress)


def _start_method() -> str:
    """The way to start processes: forked if that is safe (a progress bar runs in a thread), else spawned."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


def _serve(connection: Any, shared: object) -> None:
    """In another process: work, and change what is shared, until the first process ends it, or has been killed."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    gc.disable()
    parent = parent_process()
    with suppress(EOFError, KeyboardInterrupt):
        while parent is not None and connection in wait([connection, parent.sentinel]):
            function, items, *arguments = connection.recv()
            if items is None:
                function(shared, *arguments)
                continue
            try:
                connection.send((function(items, shared, lambda done: None), ""))
            except Exception as error:
                connection.send((error, traceback.format_exc()))


def _received(connection: Any) -> Any:
    """The result of a share of the work."""
    try:
        result, failure = connection.recv()
    except EOFError:
        raise RuntimeError("a process that works for this one has ended") from None
    if failure:
        raise result from RuntimeError(failure)
    return result


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


def convert_each(paths: Iterable[str], library: Library, progress: Progress) -> list[Conversion]:
    """Convert files whose neighbours can be read, in their order; the work of `Workers`."""
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
    format: Callable[[Mapping[str, str], Settings], Formatted] = format_files
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
        library.errors_only = self.stale is not None and not self.settings.strict
        required = {
            path: known[path].requires
            if path in known
            else (self.stale.required if self.stale else {}).get(path) or required_files(path, library)
            for path in sorted(set(paths))
        }
        needs = dependencies(required, self.settings)
        refused = {
            path: Conversion(path, {}, (input_files.cycle(Location(path), (*members[at:], *members[:at])),))
            for members in cycles(needs)
            for at, path in enumerate(members)
        }
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
        conversions = workers.do(convert_each, paths, self.progress)
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

    def _finish(self, conversion: Conversion, result: Formatted, library: Library) -> Conversion:
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


def _with_source(finding: Finding, library: Library) -> Finding:
    if finding.source_line or not library.exists(finding.location.path):
        return finding
    try:
        return finding.with_source(library.text(finding.location.path))
    except ConversionError:
        return finding
