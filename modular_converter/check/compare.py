"""Whether generated files are what their modular files give: convert in memory, compare, explain, put right."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from modular_converter.check.cache.lookup import OnDisk
from modular_converter.check.conversions import recall
from modular_converter.check.orphans import orphans
from modular_converter.convert.conversion import EXISTS, Conversion
from modular_converter.diagnostics import ConversionError, Diagnostic, Location, exit_code
from modular_converter.files.arguments import ALL, SKIPPED
from modular_converter.files.generated_files import current_text, put_in_place, target_of
from modular_converter.files.listing import Listings
from modular_converter.files.selection import select
from modular_converter.rules import generated_file_differs, generated_file_missing
from modular_converter.settings.values import Settings


BETWEEN = "\n\n\n"
"""What stands between the classes and functions of a formatted file."""


class CheckOptions(NamedTuple):
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
    errors_only: bool = False
    """Whether warnings are not asked for."""


class Difference(NamedTuple):
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
        failed = any(conversion.failed for conversion in self.conversions)
        return exit_code(self.diagnostics, incomplete=self.incomplete, different=failed)


def check(options: CheckOptions) -> CheckResult:
    """Convert what the arguments stand for in memory, and compare. Nothing is written without `fix`."""
    listings = Listings()
    try:
        found = select(
            options.arguments,
            package=options.package,
            root=options.root,
            listings=listings,
            overrides={"workers": options.workers, "strict": options.strict},
        )
        settings, paths = found.settings, list(found.paths)
        if paths and options.changed_since is not None:
            from modular_converter.convert.source.library import Library
            from modular_converter.git import affected

            paths = affected.touched_since(options.changed_since, paths, Library(settings))
    except ConversionError as error:
        return CheckResult(diagnostics=list(error.diagnostics), incomplete=True)
    result = CheckResult(diagnostics=list(found.problems), incomplete=bool(found.problems))
    try:
        result.conversions = recall(paths, settings, options.cache, errors_only=options.errors_only)
    except ConversionError as error:  # the formatter is missing
        return CheckResult(diagnostics=[*found.problems, *error.diagnostics], incomplete=True)
    result.diagnostics += [one for conversion in result.conversions for one in conversion.diagnostics]
    result.differences = _compare(result, settings)
    if options.fix:
        _fix(result, replace(settings, root=os.path.abspath(options.root)) if options.root else settings)
    result.diagnostics += [difference.diagnostic for difference in result.differences]
    folders = {os.path.dirname(path) for path in (paths if options.changed_since is not None else found.paths)}
    folders.update(_folders_given(options.arguments, found.models, listings))
    given_to = {os.path.dirname(target_of(os.path.join(folder, "_"), settings)): folder for folder in folders}
    result.diagnostics += orphans(given_to, result.conversions, listings)
    return result


def _compare(result: CheckResult, settings: Settings) -> list[Difference]:
    """The generated files that differ or are missing, each with the reason; one that may not be read is noted."""
    stale: dict[str, tuple[Conversion, str | None, str]] = {}
    for conversion in result.conversions:
        if isinstance(conversion.files, OnDisk):
            continue
        for path, new in conversion.files.items():
            try:
                old = current_text(target_of(path, settings), settings)
            except ConversionError as error:
                result.diagnostics += error.diagnostics
                result.incomplete = True
                continue
            if old != new:
                stale[path] = conversion, old, new
    return _explained(stale, settings) if stale else []


def _explained(stale: Mapping[str, tuple[Conversion, str | None, str]], settings: Settings) -> list[Difference]:
    """The differences from files that are not current: path -> conversion, text on disk, text as it should be."""
    from modular_converter.check.blame import History

    differences = []
    history = History()
    for path, (conversion, old, new) in sorted(stale.items()):
        target = target_of(path, settings)
        if old is None and not os.path.lexists(target):
            diagnostic = generated_file_missing.diagnose(Location(target), _shown(conversion.path))
        else:
            reads = conversion.reads.items()
            sources = [path for path, seen in reads if seen not in ("", EXISTS) and path not in conversion.files]
            cause = history.explain(target, new, sources, [source for source in sources if source in stale])
            diagnostic = _differs(target, conversion.path, old or "", new, cause)
        differences.append(Difference(target, conversion.path, old, new, diagnostic))
    return differences


def _differs(path: str, modular: str, old: str, new: str, cause: str) -> Diagnostic:
    old_lines, new_lines = old.split("\n"), new.split("\n")
    pairs = enumerate(zip(old_lines, new_lines))
    line = next((number for number, (before, after) in pairs if before != after), min(len(old_lines), len(new_lines)))
    location = Location(path, min(line + 1, len(old_lines)))
    changed = None if old.splitlines() == new.splitlines() else changed_definitions(old, new)
    diagnostic = generated_file_differs.diagnose(location, _shown(modular), changed, cause)
    return diagnostic.with_source(old)


def changed_definitions(old: str, new: str) -> list[str]:
    """The top-level definitions whose code differs, or that only one of the texts has, in order of the new text."""
    olds, news = old.split(BETWEEN), new.split(BETWEEN)
    same = set(olds).intersection(news)  # most of two large files, and not parsed
    before, after = (_definitions(BETWEEN.join(one for one in some if one not in same)) for some in (olds, news))
    if before is None or after is None:  # cut within a text
        before, after = _definitions(old) or {}, _definitions(new) or {}
    return [name for name in {**after, **before} if before.get(name) != after.get(name)]


def _definitions(text: str) -> dict[str, str] | None:
    """The text of each top-level definition by name; None for a text that is not Python."""
    import warnings

    from modular_converter.convert.source.index import index_module

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {name: one.text for name, one in index_module(text, "").definitions.items()}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _fix(result: CheckResult, settings: Settings) -> None:
    """Write what differs, neighbours before what builds on them; what cannot be written goes on standing."""
    left = []
    for difference in _in_order(result):
        try:
            put_in_place(difference.path, difference.new, difference.modular, settings)
            result.written.append(difference.path)
        except ConversionError as error:
            result.diagnostics += error.diagnostics
            result.incomplete = True
            left.append(difference)
    result.differences = sorted(left, key=lambda difference: difference.path)


def _in_order(result: CheckResult) -> list[Difference]:
    """The differences so that each comes after those of the modular files that it builds on."""
    from modular_converter.convert.build_order import levels

    gives = {path: conversion.path for conversion in result.conversions for path in conversion.files}
    needs = {
        conversion.path: {gives[read] for read in conversion.reads if read in gives} - {conversion.path}
        for conversion in result.conversions
    }
    place = {path: rank for rank, level in enumerate(levels(needs)) for path in level}
    return sorted(result.differences, key=lambda one: (place.get(one.modular, len(place)), one.path))


def _folders_given(arguments: Sequence[str], models: str | None, listings: Listings) -> Iterator[str]:
    """The folders that the arguments name as a whole, `all` among them, with those below, and links to folders."""
    for argument in arguments:
        folder = models if argument == ALL else argument
        if folder and os.path.isdir(folder):
            for here in listings.folders(os.path.abspath(folder), SKIPPED):
                yield here
                yield from (os.path.join(here, name) for name in listings.of(here).links)


def _shown(path: str) -> str:
    return os.path.basename(path)
