"""Whether generated files are what their modular files give: convert in memory, compare, explain, put right."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from modular_converter import changes
from modular_converter.cache import Cache
from modular_converter.config import INSTALLED, Settings, load_settings
from modular_converter.dependencies import levels
from modular_converter.diagnostics import ConversionError, Diagnostic, Location
from modular_converter.discover import ALL, discover, models_folder
from modular_converter.emit.banner import is_generated
from modular_converter.emit.output import sweep, write_atomically
from modular_converter.records import Conversion
from modular_converter.rules import generated_file_differs, generated_file_missing, generated_file_orphaned
from modular_converter.source.index import index_module
from modular_converter.source.library import Library


_MODULAR = re.compile(r"modular_\w+\.py$")
HEAD_BYTES = 8192
"""How much of a file is read to look for a banner."""


@dataclass(frozen=True)
class CheckOptions:
    """The command line, as values; None where an option was left out."""

    arguments: tuple[str, ...] = (ALL,)
    package: str | None = None
    root: str | None = None
    fix: bool = False
    changed_since: str | None = None
    workers: int | None = None
    strict: bool = False
    cache: str | None = None
    """The folder of the cache; None to go without."""


@dataclass(frozen=True)
class Difference:
    """A generated file that is not what its modular file gives."""

    path: str
    modular: str
    old: str | None
    """None for a file that is missing."""
    new: str
    diagnostic: Diagnostic


@dataclass
class CheckResult:
    """What a check has come to."""

    conversions: Sequence[Conversion] = ()
    differences: list[Difference] = field(default_factory=list)
    """Those that stand, in order of path; none of those that were put right."""
    diagnostics: list[Diagnostic] = field(default_factory=list)
    """All that is to be said, that of the differences included."""
    written: list[str] = field(default_factory=list)
    incomplete: bool = False
    """Whether something could not be checked, or could not be written."""

    @property
    def exit_code(self) -> int:
        """2 when something could not be checked, 1 with findings, else 0."""
        if self.incomplete or any(conversion.failed for conversion in self.conversions):
            return 2
        return 1 if any(diagnostic.is_error for diagnostic in self.diagnostics) else 0


def check(options: CheckOptions) -> CheckResult:
    """Convert what the arguments stand for in memory, and compare. Nothing is written without `fix`."""
    try:
        settings = _settings(options, options.root or os.getcwd())
        models = models_folder(options.package, options.root, settings.root)
        found = discover(options.arguments, models)
        paths = list(found.paths)
        if paths:
            settings = _settings(options, os.path.dirname(paths[0]))
            if options.changed_since is not None:
                paths = changes.touched_since(options.changed_since, paths, Library(settings))
    except ConversionError as error:
        return CheckResult(diagnostics=list(error.diagnostics), incomplete=True)
    result = CheckResult(diagnostics=list(found.problems), incomplete=bool(found.problems))
    try:
        result.conversions = _convert(paths, settings, options.cache)
    except ConversionError as error:  # the formatter is missing
        return CheckResult(diagnostics=[*found.problems, *error.diagnostics], incomplete=True)
    result.diagnostics += [one for conversion in result.conversions for one in conversion.diagnostics]
    result.differences = _compare(result.conversions, settings)
    if options.fix:
        _fix(result, settings)
    result.diagnostics += [difference.diagnostic for difference in result.differences]
    folders = {os.path.dirname(path) for path in (paths if options.changed_since is not None else found.paths)}
    folders.update(_folders_given(options.arguments, models))
    result.diagnostics += _orphans(folders, result.conversions)
    return result


def _convert(paths: Sequence[str], settings: Settings, folder: str | None) -> list[Conversion]:
    """Convert all but the files that the cache answers for.

    A file on record is converted all the same when what it is made from proves out of date on disk.
    """
    if not paths:
        return []
    cache = Cache(folder, settings) if folder else None
    known = {path: found for path in paths if cache and (found := cache.look_up(path))}
    done: dict[str, Conversion] = {}
    while missing := [path for path in paths if path not in known and path not in done]:
        from modular_converter.runner import Run

        wanted = sorted({*missing, *done})
        done = {one.path: one for one in Run(settings, workers=settings.workers).convert(wanted)}
        stale = {path for one in done.values() for path, new in one.files.items() if _text(path) != new}
        known = {path: found for path, found in known.items() if stale.isdisjoint(found.reads)}
    if cache and done and not any(_text(path) != new for one in done.values() for path, new in one.files.items()):
        cache.store(done.values())
    return [{**known, **done}[path] for path in sorted(paths)]


def _settings(options: CheckOptions, start: str) -> Settings:
    settings = load_settings(start)
    workers = settings.workers if options.workers is None else options.workers
    return replace(settings, workers=workers, strict=settings.strict or options.strict)


def _compare(conversions: Sequence[Conversion], settings: Settings) -> list[Difference]:
    """The generated files that differ or are missing, each with the reason."""
    stale: dict[str, tuple[Conversion, str | None, str]] = {}
    for conversion in conversions:
        for path, new in conversion.files.items():
            old = _text(_target(path, settings))
            if old != new:
                stale[path] = conversion, old, new
    differences = []
    history = changes.History(os.path.dirname(_target(min(stale), settings))) if stale else None
    for path, (conversion, old, new) in sorted(stale.items()):
        target = _target(path, settings)
        if history is None or (old is None and not os.path.lexists(target)):
            diagnostic = generated_file_missing.diagnose(Location(target), _shown(conversion.path))
        else:
            sources = [read for read in conversion.reads if read not in conversion.files]
            cause = history.explain(target, new, sources, [read for read in sources if read in stale])
            diagnostic = _differs(target, conversion.path, old or "", new, cause)
        differences.append(Difference(target, conversion.path, old, new, diagnostic))
    return differences


def _differs(path: str, modular: str, old: str, new: str, cause: str) -> Diagnostic:
    old_lines, new_lines = old.split("\n"), new.split("\n")
    pairs = enumerate(zip(old_lines, new_lines))
    line = next((number for number, (before, after) in pairs if before != after), min(len(old_lines), len(new_lines)))
    location = Location(path, min(line + 1, len(old_lines)))
    diagnostic = generated_file_differs.diagnose(location, _shown(modular), changed_definitions(old, new), cause)
    return diagnostic.with_source(old)


def changed_definitions(old: str, new: str) -> list[str]:
    """The top-level definitions whose code differs, or that only one of the texts has, in order of the new text."""
    before, after = _definitions(old), _definitions(new)
    return [name for name in {**after, **before} if before.get(name) != after.get(name)]


def _definitions(text: str) -> dict[str, str]:
    """The text of each top-level definition by name; none for a text that is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {name: one.text for name, one in index_module(text, "").definitions.items()}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _fix(result: CheckResult, settings: Settings) -> None:
    """Write what differs, neighbours before what builds on them; what cannot be written goes on standing."""
    left = []
    for difference in _in_order(result):
        folder = os.path.dirname(difference.path)
        try:
            if not settings.output_dir and INSTALLED & set(difference.path.split(os.sep)):
                from modular_converter.rules import read_only_target

                reason = "it belongs to an installed package"
                raise ConversionError(read_only_target.diagnose(Location(difference.path), reason))
            sweep(folder)
            write_atomically(difference.path, difference.new, settings.output_dir or folder)
            result.written.append(difference.path)
        except ConversionError as error:
            result.diagnostics += error.diagnostics
            result.incomplete = True
            left.append(difference)
    result.differences = sorted(left, key=lambda difference: difference.path)


def _in_order(result: CheckResult) -> list[Difference]:
    """The differences so that each comes after those of the modular files that it builds on."""
    gives = {path: conversion.path for conversion in result.conversions for path in conversion.files}
    needs = {
        conversion.path: {gives[read] for read in conversion.reads if read in gives} - {conversion.path}
        for conversion in result.conversions
    }
    place = {path: rank for rank, level in enumerate(levels(needs)) for path in level}
    return sorted(result.differences, key=lambda one: (place.get(one.modular, len(place)), one.path))


def _folders_given(arguments: Sequence[str], models: str | None) -> Iterator[str]:
    """The folders that the arguments name as a whole, `all` among them, with those directly in them."""
    for argument in arguments:
        folder = models if argument == ALL else argument
        if folder and os.path.isdir(folder):
            yield os.path.abspath(folder)
            yield from (os.path.abspath(entry.path) for entry in os.scandir(folder) if entry.is_dir())


def _orphans(folders: Collection[str], conversions: Sequence[Conversion]) -> list[Diagnostic]:
    """Files in these folders with a banner that no modular file gives."""
    gives = {conversion.path: conversion.files for conversion in conversions if not conversion.failed}
    found = []
    for path in _python_files(folders):
        source = is_generated(_head(path))
        modular = os.path.join(os.path.dirname(path), os.path.basename(source))
        if not _MODULAR.match(os.path.basename(source)):  # the same words stand in files that other tools generate
            continue
        if not os.path.isfile(modular):
            found.append(generated_file_orphaned.diagnose(Location(path), source, "does not exist"))
        elif modular in gives and path not in gives[modular]:
            found.append(generated_file_orphaned.diagnose(Location(path), source, "no longer gives this file"))
    return found


def _python_files(folders: Collection[str]) -> Iterator[str]:
    for folder in sorted(folders):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


def _head(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(HEAD_BYTES).decode("utf-8", "replace") + "\n"
    except OSError:
        return ""


def _target(path: str, settings: Settings) -> str:
    """Where a generated file lies: beside its modular file, or below the configured folder."""
    if not settings.output_dir:
        return path
    return os.path.join(settings.output_dir, os.path.basename(os.path.dirname(path)), os.path.basename(path))


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def _shown(path: str) -> str:
    return os.path.basename(path)
