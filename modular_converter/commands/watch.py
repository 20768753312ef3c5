"""`modular-convert --watch`: convert again what a saved file affects, one line a change, until Ctrl-C.

Every pass looks at the tree anew, with the settings as they are now, so that nothing learnt earlier can be out of
date. Kept between passes is only which files each conversion has read, and what this process has written itself.
"""

from __future__ import annotations

import glob
import itertools
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from modular_converter.commands.run_convert import ConvertOptions, Plan, prepare, report
from modular_converter.convert.batch import Run
from modular_converter.convert.build_order import required_files
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.source.library import Library
from modular_converter.diagnostics import ConversionError, Diagnostic
from modular_converter.files.generated_files import put_in_place, target_of
from modular_converter.files.links import is_installed
from modular_converter.git.affected import SETTINGS_FILES, affected, named_settings
from modular_converter.reporting.counts import count
from modular_converter.reporting.paths import shown
from modular_converter.settings.parent_folders import upwards


TICK_MS = 250
"""How often settings are looked at, and whether the folders that are watched still are the same folders."""
NAMED = 3
"""Files that a line names; the rest are counted."""
_ADDED, _DELETED = 1, 3
"""Kinds of change, as watchfiles numbers them."""

Batch = Collection[tuple[int, str]]
"""Paths that changed together, each with the kind of change."""
Stamp = tuple[int, ...]
"""What tells that a file was written to, or replaced; `()` for one that is not there."""


class WatchError(Exception):
    """Raised when nothing can be watched; the message is for people."""


@dataclass
class Watch:
    """What is kept between passes."""

    options: ConvertOptions
    reads: dict[str, frozenset[str]] = field(default_factory=dict)
    """Modular file -> the files that its last conversion asked for, those that were missing too."""
    own: dict[str, Stamp] = field(default_factory=dict)
    """Generated file -> its stamp when this process had written it."""
    roots: frozenset[str] = frozenset()
    """The folders that the arguments named at the start. They may go and come again."""
    folders: tuple[str, ...] = ()
    """The folders to watch, with all that is in them: the roots, and those of neighbours elsewhere."""
    settings: tuple[str, ...] = ()
    """The files that settings are read from, or would be if they were there."""

    started: bool = False

    def say(self, line: str, *, important: bool = False) -> None:
        """Print a line with the time; of `--quiet`, errors alone."""
        if important or not self.options.quiet:
            print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def watch(options: ConvertOptions) -> int:
    """Convert what is out of date, then whatever a saved file affects, until Ctrl-C.

    Returns 0 after Ctrl-C, which is how it is meant to end, and 2 when the arguments or settings are wrong at the
    start. Raises `WatchError` when it cannot watch.
    """
    state = Watch(options)
    try:
        plan = prepare(options)
        if plan.found.problems:
            raise ConversionError(*plan.found.problems)
    except ConversionError as error:
        report(options, list(error.diagnostics))
        return 2
    _look_around(state, plan)
    if not state.folders:
        raise WatchError("there is nothing to watch: what is installed is only read")
    try:
        while True:
            _follow(state)
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the shell's prompt goes below the ^C
    return 0


def _follow(state: Watch) -> None:
    """Make a pass over everything, then one for what is saved, for as long as these are the folders to watch."""
    folders, before = state.folders, _identities(state.folders)
    batches = _batches([folder for folder in folders if os.path.isdir(folder)])
    next(batches)  # from now on no change is lost
    settings = _stamps(state.settings)
    _pass(state, None, "other folders" if state.started else "start")
    state.started = True
    if state.folders != folders:  # those of the neighbours are known only now
        return
    state.say(f"watching {count(len(state.reads), 'modular file')}, Ctrl-C ends")
    for batch in batches:
        if state.folders != folders or _identities(folders) != before:
            return
        now = _stamps(state.settings)
        if touched := [path for path, stamp in now.items() if settings.get(path, stamp) != stamp]:
            _pass(state, None, _label(touched))
        elif saved := _saved(state, batch):
            _pass(state, saved, _label(saved))
        settings = now


def _batches(folders: Sequence[str]) -> Iterator[Batch]:
    """What changes in these folders; an empty batch a tick, the first of them when they are being watched."""
    try:
        import watchfiles
    except ImportError:
        reason = '`--watch` needs the package `watchfiles`: `pip install "modular-converter[watch]"`'
        raise WatchError(reason) from None
    if not folders:  # a checkout of another branch may bring them back
        time.sleep(TICK_MS / 1000)
    try:
        yield from watchfiles.watch(*folders, watch_filter=None, rust_timeout=TICK_MS, yield_on_timeout=True)
    except FileNotFoundError:  # one has just gone: the next look around will tell
        yield ()
    except (OSError, RuntimeError) as error:
        raise WatchError(f"cannot watch these folders: {error}") from None


def _saved(state: Watch, batch: Batch) -> list[str]:
    """The files of a batch that can matter: Python files, and those of whole folders that came or went."""
    known = {*state.reads, *state.own}.union(*state.reads.values())
    files: set[str] = set()
    for kind, path in batch:
        if kind == _ADDED and os.path.isdir(path):
            files.update(file for file in glob.iglob(os.path.join(glob.escape(path), "**", "*.py"), recursive=True))
        elif kind == _DELETED and not path.endswith(".py"):
            files.update(file for file in known if file.startswith(os.path.join(path, "")))
        elif path.endswith(".py") and not os.path.basename(path).startswith("."):
            files.add(path)
    stamps = {file: _stamp(file) for file in files}
    return sorted(
        file
        for file, stamp in stamps.items()
        if stamp != state.own.get(file) and (stamp or file in known)  # not what has come and gone meanwhile
    )


def _pass(state: Watch, saved: Sequence[str] | None, label: str) -> None:
    """Convert what the saved files affect, or everything; write what differs, and print the line."""
    started = time.perf_counter()
    try:
        plan = prepare(state.options)
        paths = plan.found.paths if saved is None else _affected(state, saved, plan)
        conversions = Run(plan.settings, workers=plan.settings.workers).convert(paths)
    except ConversionError as error:  # settings in mid-edit, a formatter that is missing
        _tell(state, label, (), [], list(error.diagnostics), started)
        return
    state.reads = {path: state.reads.get(path, frozenset()) for path in plan.found.paths}
    state.reads.update({conversion.path: frozenset(conversion.reads) for conversion in conversions})
    written, problems = _write(state, plan, conversions)
    _look_around(state, plan)
    _tell(state, label, conversions, written, [*plan.found.problems, *problems], started)


def _affected(state: Watch, saved: Sequence[str], plan: Plan) -> list[str]:
    """The modular files that are saved, or new, or have read a saved file, and all that build on them in turn."""
    changed = {os.path.realpath(path) for path in saved}
    for path in plan.found.paths:
        if path not in state.reads or not state.reads[path].isdisjoint(saved):
            changed.add(os.path.realpath(path))
    return affected(changed, plan.found.paths, Library(plan.settings))


def _write(state: Watch, plan: Plan, conversions: Sequence[Conversion]) -> tuple[list[str], list[Diagnostic]]:
    """Put in place what differs; return what was written, and all that is to be said of the conversions."""
    written: list[str] = []
    problems = [diagnostic for conversion in conversions for diagnostic in conversion.diagnostics]
    for conversion in conversions:
        for path, text in conversion.files.items():
            target = target_of(path, plan.settings)
            try:
                if put_in_place(target, text, conversion.path, plan.settings):
                    written.append(target)
                    state.own[target] = _stamp(target)
            except ConversionError as error:
                problems += error.diagnostics
    return written, problems


def _tell(
    state: Watch,
    label: str,
    conversions: Sequence[Conversion],
    written: Sequence[str],
    problems: Sequence[Diagnostic],
    started: float,
) -> None:
    errors = [problem for problem in problems if problem.is_error]
    parts = [f"wrote {_named(written)}"] if written else []
    if errors:
        first = errors[0]
        place = f"{shown(first.location.path, os.getcwd())}:{first.location.line}:{first.location.column}"
        parts.append(" ".join(f"{place} {first.code} {first.message}".split()))
        parts += [f"{count(len(errors) - 1, 'more error')}"] if len(errors) > 1 else []
    if not parts:
        parts.append(f"{count(len(conversions), 'modular file')} up to date" if conversions else "nothing to convert")
    if warnings := len(problems) - len(errors):
        parts.append(count(warnings, "warning"))
    state.say(f"{label}: {'; '.join(parts)}, {time.perf_counter() - started:.2f} s", important=bool(errors))


def _look_around(state: Watch, plan: Plan) -> None:
    """Settle which folders and settings files matter now. Installed packages are not watched."""
    state.roots = state.roots or frozenset(_roots(state.options.arguments, plan.models))
    library = Library(plan.settings)
    files = set(plan.found.paths).union(*(required_files(path, library) for path in plan.found.paths))
    folders = {*state.roots, *map(os.path.dirname, files)}
    if plan.found.problems:  # a file that is gone may come again, with the same neighbours
        folders.update(state.folders)
    folders = {folder for folder in folders if not is_installed(folder)}
    state.folders = tuple(
        sorted(folder for folder in folders if folders.isdisjoint(itertools.islice(upwards(folder), 1, None)))
    )
    starts = {os.path.abspath(state.options.root or os.curdir), *map(os.path.dirname, plan.found.paths[:1])}
    candidates = {
        os.path.join(folder, name) for start in starts for folder in upwards(start) for name in SETTINGS_FILES
    }
    state.settings = tuple(sorted(named_settings(plan.settings) | candidates))


def _roots(arguments: Sequence[str], models: str | None) -> Iterator[str]:
    """The folders that new files of these arguments would lie in."""
    for argument in arguments:
        if glob.has_magic(argument):
            yield os.path.abspath(_fixed_part(argument))
        elif os.path.isdir(argument):
            yield os.path.abspath(argument)
        elif os.path.isfile(argument):
            yield os.path.dirname(os.path.abspath(argument))
        elif models:
            yield models


def _fixed_part(pattern: str) -> str:
    """The folder that a glob searches: what stands before its first part with a wildcard."""
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def _identities(folders: Sequence[str]) -> list[Stamp]:
    """Which folders these are: one that is removed and made again is another one, and has to be watched again."""
    return [_stamp(folder)[:2] for folder in folders]


def _stamps(paths: Sequence[str]) -> dict[str, Stamp]:
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _label(saved: Sequence[str]) -> str:
    gone = [path for path in saved if not os.path.exists(path)]
    return f"{_named(saved)} {'removed' if len(gone) == len(saved) else 'saved'}"


def _named(paths: Sequence[str]) -> str:
    names = ", ".join(shown(path, os.getcwd()) for path in paths[:NAMED])
    return f"{names} and {len(paths) - NAMED} more" if len(paths) > NAMED else names
