"""`modular-convert --watch`: convert again the files that a saved file affects, and print one line for each change.

Only the files that a saved file affects are written, and at the start the files that the command line names. Other
models may be out of date for reasons that do not concern this user. Each pass reads the settings and finds the files
again, so that changes of both count. Between passes only two things are kept: the conversions, which tell the files that
they have read with their hashes, and the files that this process has written.
"""

from __future__ import annotations

import functools
import glob
import itertools
import os
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from modular_converter.check.cache.lookup import CurrentHashes
from modular_converter.check.cache.store import cache_folder
from modular_converter.check.conversions import files_required, find_conversions
from modular_converter.commands.options import progress, report
from modular_converter.commands.run_convert import ConvertOptions, prepare
from modular_converter.convert.batch import Run
from modular_converter.convert.schedule import heirs_of
from modular_converter.convert.source.library import Library
from modular_converter.files.arguments import ALL, Selection
from modular_converter.files.read import is_installed
from modular_converter.files.write import current_text, path_of_generated, put_in_place
from modular_converter.findings import Conversion, ConversionError, Finding, first_of
from modular_converter.git.affected import SETTINGS_FILES, named_settings
from modular_converter.reporting.display import count, shown_path
from modular_converter.settings.disk import upwards
from modular_converter.settings.values import Settings, modular_of


TICK_MS = 250
"""Milliseconds between two looks at the settings files and at the identity of the watched folders."""
NAMED = 3
"""The number of files that a line names; the rest are counted."""
_ADDED, _DELETED = 1, 3
"""Kinds of change; the numbers are those of watchfiles."""

Batch = Collection[tuple[int, str]]
"""Paths that changed together, each with its kind of change."""


class WatchError(Exception):
    """Raised when no folder can be watched; the message says why."""


@dataclass
class Watch:
    """The state between passes."""

    options: ConvertOptions
    last: dict[str, Conversion] = field(default_factory=dict)
    """Modular file -> its last conversion."""
    own: dict[str, Stamp] = field(default_factory=dict)
    """Generated file -> its stamp after this process wrote it."""
    roots: frozenset[str] = frozenset()
    """The folders that the arguments named at the start. They may disappear and come back."""
    folders: tuple[str, ...] = ()
    """The folders to watch at any depth: the roots, and the folders of neighbours outside the roots."""
    settings: tuple[str, ...] = ()
    """The files that settings are read from, missing files included."""
    started: bool = False

    def say(self, line: str, *, important: bool = False) -> None:
        """Print a line with the time; with `--quiet`, only important lines."""
        if important or not self.options.quiet:
            print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def watch_models(options: ConvertOptions) -> int:
    """Convert the files that are out of date, then those that each saved file affects, until Ctrl-C.

    Returns the exit code: 0 after Ctrl-C, 2 when the arguments or settings are wrong at the start. Raises
    `WatchError` when no folder can be watched.
    """
    state = Watch(options)
    try:
        selection = prepare(options)
        if selection.findings:
            raise ConversionError(*selection.findings)
    except ConversionError as error:
        report(error.findings, quiet=options.quiet)
        return 2
    _update_folders(state, selection)
    if not state.folders:
        raise WatchError("there is nothing to watch: installed packages are not watched")
    try:
        while True:
            _follow(state)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the shell's prompt begins on the line after ^C
    return 0


def _follow(state: Watch) -> None:
    """Convert all files once, then after each change; return when other folders must be watched."""
    folders, before = state.folders, identities(state.folders)
    batches = _batches([folder for folder in folders if os.path.isdir(folder)])
    next(batches)  # the folders are being watched now, so no change is lost
    settings = stamps(state.settings)
    if state.started:  # files that were saved while nothing was watched
        _pass(state, _changed_since_read(state), "other folders")
    else:
        _pass(state, None, "start", writes=state.options.arguments != (ALL,))
    state.started = True
    if state.folders != folders:  # the first pass has found the folders of the neighbours
        return
    state.say(f"watching {count(len(state.last), 'modular file')}, Ctrl-C ends")
    for batch in batches:
        if state.folders != folders or identities(folders) != before:
            return
        now = stamps(state.settings)
        if touched := [path for path, stamp in now.items() if settings.get(path, stamp) != stamp]:
            _pass(state, None, _label(touched))
        elif saved := _saved(state, batch):
            _pass(state, saved, _label(saved))
        settings = now


def _batches(folders: Sequence[str]) -> Iterator[Batch]:
    """The changes in these folders: an empty batch once they are watched, then a batch each tick, often empty."""
    try:
        import watchfiles
    except ImportError:
        reason = "`--watch` needs the package `watchfiles`: `pip install watchfiles`"
        raise WatchError(reason) from None
    if not folders:  # another branch may bring them back
        time.sleep(TICK_MS / 1000)
    try:
        yield from watchfiles.watch(*folders, watch_filter=None, rust_timeout=TICK_MS, yield_on_timeout=True)
    except FileNotFoundError:  # a folder has just disappeared; the caller looks for the folders again
        yield ()
    except (OSError, RuntimeError) as error:
        raise WatchError(f"cannot watch these folders: {error}") from None


def _saved(state: Watch, batch: Batch) -> list[str]:
    """The Python files that a batch has changed, also through folders that were added or removed."""
    known = {*state.last, *state.own}.union(*(one.reads for one in state.last.values()))
    files: set[str] = set()
    for kind, path in batch:
        if kind == _ADDED and os.path.isdir(path):
            files.update(file for file in glob.iglob(os.path.join(glob.escape(path), "**", "*.py"), recursive=True))
        elif kind == _DELETED and not path.endswith(".py"):
            files.update(file for file in known if file.startswith(os.path.join(path, "")))
        elif path.endswith(".py") and not os.path.basename(path).startswith("."):
            files.add(path)
    found = stamps(files)
    return sorted(
        file
        for file, stamp in found.items()
        if stamp != state.own.get(file) and (stamp or file in known)  # unknown files that are gone do not count
    )


def _changed_since_read(state: Watch) -> list[str]:
    """The files that a conversion has read and that have changed since, except for generated files."""
    hashes = CurrentHashes(prepare(state.options).settings)
    read = {entry for one in state.last.values() for entry in one.reads.items()}
    generated = {path for one in state.last.values() for path in one.files}
    return sorted(path for path, value in read if path not in generated and not hashes.matches(path, value))


def _pass(state: Watch, saved: Sequence[str] | None, label: str, *, writes: bool = True) -> None:
    """Convert the files that `saved` affects (None: all), write or count the files that differ, and print one line."""
    started = time.perf_counter()
    try:
        selection = prepare(state.options)
        paths = selection.paths if saved is None else _affected(state, saved, selection)
        conversions, current = _conversions(state, paths, selection.settings, everything=saved is None)
    except ConversionError as error:  # settings in the middle of an edit, or a missing formatter
        _print_line(state, label, (), "", list(error.findings), started)
        return
    state.last = {path: state.last[path] for path in selection.paths if path in state.last}
    state.last.update((conversion.path, conversion) for conversion in conversions)
    different, findings = _write(state, selection, conversions, current, writes)
    _update_folders(state, selection)
    action = f"wrote {_named(different)}" if writes else f"left as they are, though out of date: {_named(different)}"
    _print_line(state, label, conversions, action if different else "", [*selection.findings, *findings], started)


def _conversions(
    state: Watch, paths: Sequence[str], settings: Settings, *, everything: bool
) -> tuple[Sequence[Conversion], Collection[str]]:
    """The conversions of a pass, and the modular files whose generated files are known to be current. A pass over
    everything asks the cache of the check; a pass over a few files is quicker without.
    """
    if not everything:
        return Run(settings, workers=settings.workers).convert(paths), ()
    bar = functools.partial(progress, "converting", quiet=state.options.quiet)
    found = find_conversions(paths, settings, cache_folder(), bar=bar)
    return found.all, found.known.keys()


def _affected(state: Watch, saved: Sequence[str], selection: Selection) -> list[str]:
    """The modular files that were saved, are new, or have read a saved file, and all their heirs."""
    settings = selection.settings
    touched = {*saved, *(modular_of(path, settings) for path in saved), *map(os.path.realpath, saved)} - {""}
    known = {path: state.last[path].reads for path in selection.paths if path in state.last}
    changed = [
        path
        for path in selection.paths
        if path not in known or not touched.isdisjoint((path, os.path.realpath(path), *known[path]))
    ]
    return sorted({heir for path in changed for heir in heirs_of(path, known, settings)})


def _write(
    state: Watch, selection: Selection, conversions: Sequence[Conversion], current: Collection[str], writes: bool
) -> tuple[list[str], list[Finding]]:
    """Write the generated files that differ, or only find them; return their paths and all findings."""
    different: list[str] = []
    findings = [finding for conversion in conversions for finding in conversion.findings]
    for conversion in (one for one in conversions if one.path not in current):
        for path, text in conversion.files.items():
            target = path_of_generated(path, selection.settings)
            try:
                if not writes and current_text(target, selection.settings) != text:
                    different.append(target)
                elif writes and put_in_place(target, text, conversion.path, selection.settings):
                    different.append(target)
                    state.own[target] = stamp_of(target)
            except ConversionError as error:
                findings += error.findings
    return different, list(dict.fromkeys(findings))


def _print_line(
    state: Watch,
    label: str,
    conversions: Sequence[Conversion],
    action: str,
    findings: Sequence[Finding],
    started: float,
) -> None:
    """Print the line of a pass: the action, the files, the first error, the number of warnings, the time."""
    errors = [finding for finding in findings if finding.is_error]
    parts = [action] if action else []
    if errors:
        first = errors[0]
        place = f"{shown_path(first.location.path, os.getcwd())}:{first.location.line}:{first.location.column}"
        parts.append(" ".join(f"{place} {first.code} {first.message}".split()))
        parts += [f"{count(len(errors) - 1, 'more error')}"] if len(errors) > 1 else []
    if not parts:
        parts.append(f"{count(len(conversions), 'modular file')} up to date" if conversions else "nothing to convert")
    if warnings := len(findings) - len(errors):
        parts.append(count(warnings, "warning"))
    state.say(f"{label}: {'; '.join(parts)}, {time.perf_counter() - started:.2f} s", important=bool(errors))


def _update_folders(state: Watch, selection: Selection) -> None:
    """Find the folders and settings files to watch from now on. Installed packages are left out."""
    state.roots = state.roots or frozenset(roots(state.options.arguments, selection.models))
    library = Library(selection.settings)
    known = {path: one.requires for path, one in state.last.items() if not one.failed}
    asked = [path for path in selection.paths if path not in known]
    required = {**known, **files_required(asked, selection.settings, cache_folder(), library)}
    files = set(selection.paths).union(*(required[path] for path in selection.paths))
    folders = {*state.roots, *map(os.path.dirname, files)}
    if selection.findings:  # a missing file may come back, with the same neighbours
        folders.update(state.folders)
    folders = {folder for folder in folders if not is_installed(folder)}
    state.folders = tuple(
        sorted(folder for folder in folders if folders.isdisjoint(itertools.islice(upwards(folder), 1, None)))
    )
    starts = {os.path.abspath(state.options.root or os.curdir), *map(os.path.dirname, selection.paths[:1])}
    candidates = {
        os.path.join(folder, name) for start in starts for folder in upwards(start) for name in SETTINGS_FILES
    }
    state.settings = tuple(sorted(named_settings(selection.settings) | candidates))


def _label(saved: Sequence[str]) -> str:
    gone = [path for path in saved if not os.path.exists(path)]
    return f"{_named(saved)} {'removed' if len(gone) == len(saved) else 'saved'}"


def _named(paths: Sequence[str]) -> str:
    return first_of([shown_path(path, os.getcwd()) for path in paths], NAMED)


Stamp = tuple[int, ...]
"""Device, inode, size and time of a file: a new stamp means a changed file. `()` for a missing file."""


def roots(arguments: Sequence[str], models: str | None) -> Iterator[str]:
    """The folders in which the arguments would find new files."""
    for argument in arguments:
        if glob.has_magic(argument):
            # The part of a glob before its first wildcard.
            pattern = argument
            while glob.has_magic(pattern):
                pattern = os.path.dirname(pattern)
            yield os.path.abspath(pattern)
        elif os.path.isdir(argument):
            yield os.path.abspath(argument)
        elif os.path.isfile(argument):
            yield os.path.dirname(os.path.abspath(argument))
        elif models:
            yield models


def identities(folders: Sequence[str]) -> list[Stamp]:
    """Device and inode of each folder: a folder that was removed and made again must be watched again."""
    return [stamp_of(folder)[:2] for folder in folders]


def stamps(paths: Iterable[str]) -> dict[str, Stamp]:
    return {path: stamp_of(path) for path in paths}


def stamp_of(path: str) -> Stamp:
    """The stamp of one file or folder."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
