"""A check, from the values of the command line to its result: select files -> which formatter -> what still holds ->
convert the rest -> compare -> explain -> fix -> look for orphans
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.check.cache.key import remembered_versions
from modular_converter.check.conversions import Bar, Differences, convert_given, find_conversions, no_bar
from modular_converter.convert.emit.formatters import wrong_versions
from modular_converter.convert.silence import release_first
from modular_converter.files.arguments import (
    ALL,
    Listings,
    Selection,
    Unignored,
    folders_below,
    select_files,
)
from modular_converter.files.read import heads
from modular_converter.files.write import is_about_release, is_generated, path_of_generated
from modular_converter.findings import Conversion, ConversionError, Finding, Location, exit_code
from modular_converter.rules import stale_files
from modular_converter.settings.disk import repository_above
from modular_converter.settings.values import BANNER_NOTICE, Settings, is_modular


if TYPE_CHECKING:
    from modular_converter.check.compare import Difference


class CheckOptions(NamedTuple):
    """The command line, as values; None for an option that is missing."""

    arguments: tuple[str, ...] = (ALL,)
    package: str | None = None
    root: str | None = None
    fix: bool = False
    changed_since: str | None = None
    workers: int | None = None
    strict: bool = False
    cache: str | None = None
    """The folder of the cache; None to go without."""
    accept_release: str | None = None
    content: bytes | None = None
    """The text of the only file that `arguments` name, which is read in place of it."""
    errors_only: bool = False
    """Whether warnings are left out."""
    bar: Bar = no_bar


class CheckResult(NamedTuple):
    """The result of a check."""

    conversions: Sequence[Conversion] = ()
    """Sorted by path."""
    differences: Sequence[Difference] = ()
    """The differences that remain, sorted by path; none of those that were written."""
    findings: Sequence[Finding] = ()
    """All findings, those of the differences included."""
    written: Sequence[str] = ()
    incomplete: bool = False
    """Whether something could not be checked or written."""
    converted: int = 0
    """The number of conversions that were not in the cache."""
    settings: Settings | None = None
    """The settings of the checked files; None where none were found."""

    @property
    def exit_code(self) -> int:
        """2 when something could not be checked, 1 with findings, else 0."""
        failed = any(conversion.failed for conversion in self.conversions)
        return exit_code(self.findings, incomplete=self.incomplete, different=failed)


def check(options: CheckOptions) -> CheckResult:
    """Check that generated files equal their conversion. Nothing is written without `fix`."""
    listings = Listings(_unignored())
    unchecked: list[Finding] = []
    try:
        selection = _select(options, listings)
        unchecked += selection.findings
        paths, settings = _affected(selection, options.changed_since), selection.settings
        wrong = wrong_versions(settings, map(os.path.dirname, paths), remembered_versions(options.cache))
        if wrong:  # the code can still be compared, and nothing is written
            settings = settings.with_any_formatter
        if selection.given:
            found = convert_given(selection.given, settings)
        else:
            found = find_conversions(paths, settings, options.cache, errors_only=options.errors_only, bar=options.bar)
    except ConversionError as error:
        return CheckResult(findings=[*unchecked, *error.findings], incomplete=True)
    differences = Differences()
    if found.made or wrong:
        from modular_converter.check.differences import find_differences  # a check of current files needs none of it

        folder = (options.root or "") if options.fix else None
        differences = find_differences(found, settings, wrong, fix_in=folder, given=selection.given)
    unchecked += differences.wrong_versions
    findings = [finding for conversion in found.all for finding in conversion.findings]
    findings += [*differences.failures, *_findings_of(differences.left)]
    folders = _folders(paths if options.changed_since is not None else selection.paths, options, selection, listings)
    findings += orphans(folders, found.all, settings, listings)
    if ALL in options.arguments and options.changed_since is None and selection.models:
        findings += _merge_setup(selection.models, found.all)
    unchecked += (finding for finding in listings.findings if finding not in unchecked)
    return CheckResult(
        found.all,
        differences.left,
        release_first([*unchecked, *findings], settings),
        differences.written,
        incomplete=bool(unchecked) or not is_about_release(differences.failures),
        converted=len(found.made),
        settings=settings,
    )


def _merge_setup(models: str, conversions: Sequence[Conversion]) -> Sequence[Finding]:
    """The finding about git's driver for generated files, if the project has set it up."""
    if not os.path.isfile(os.path.join(repository_above(models), ".gitattributes")):
        return []
    from modular_converter.git.merge_driver import missing_setup  # an ordinary check needs no git

    return missing_setup(models, [path for one in conversions for path in one.files])


def _findings_of(differences: Sequence[Difference]) -> list[Finding]:
    """The findings about differences: first those that several files share, each once."""
    found = list(dict.fromkeys(finding for one in differences for finding in one.findings))
    return [*(one for one in found if one.related), *(one for one in found if not one.related)]


def _unignored() -> Unignored:
    """`UnignoredFiles`, imported only for a hidden folder or an output folder: an ordinary check needs no git."""

    @functools.cache
    def files() -> Unignored:
        from modular_converter.git.work_tree import UnignoredFiles

        return UnignoredFiles()

    return lambda folder, names: files()(folder, names)


def _select(options: CheckOptions, listings: Listings) -> Selection:
    overrides = {"workers": options.workers, "strict": options.strict, "accept_release": options.accept_release}
    arguments, package, root = options[:3]
    return select_files(
        arguments, package=package, root=root, listings=listings, overrides=overrides, content=options.content
    )


def _affected(selection: Selection, changed_since: str | None) -> Sequence[str]:
    """The selected files that a change affects, or all of them. Raises `ConversionError` for an unknown commit."""
    if changed_since is None or not selection.paths:
        return selection.paths
    from modular_converter.convert.source.library import Library  # an ordinary check needs no parser and no git
    from modular_converter.git.affected import touched_since

    return touched_since(changed_since, selection.paths, Library(selection.settings))


def _folders(
    paths: Sequence[str], options: CheckOptions, selection: Selection, listings: Listings
) -> dict[str, list[str]]:
    """The folders to search for orphans: folder of generated files -> folders of their modular files, sorted."""
    folders = {os.path.dirname(path) for path in paths}
    folders.update(_folders_given(options.arguments, selection.models, listings))
    found: dict[str, list[str]] = {}
    for folder in sorted(folders):  # an output folder has one folder for all models of a name
        target = os.path.dirname(path_of_generated(os.path.join(folder, "_"), selection.settings))
        found.setdefault(target, []).append(folder)
    return found


def _folders_given(arguments: Sequence[str], models: str | None, listings: Listings) -> Iterator[str]:
    """The folders that the arguments name as a whole, `all` among them, with those below."""
    for argument in arguments:
        folder = models if argument == ALL else argument
        if folder and os.path.isdir(folder):
            yield from folders_below(folder, listings)


_MARK = BANNER_NOTICE.partition(" {")[0].encode()
"""A part of every banner. Few other files begin with these bytes."""
HEAD_BYTES = 8192
"""The number of bytes of a file that are searched for a banner."""


def orphans(
    folders: Mapping[str, Collection[str]], conversions: Sequence[Conversion], settings: Settings, listings: Listings
) -> list[Finding]:
    """The files with a banner that no modular file gives.

    Args:
        folders: folder of generated files -> folders of their modular files, mostly the same one.
        conversions: all conversions of the check.
        settings: they bound what may be read.
        listings: the names in the folders.
    """
    gives = {conversion.path: conversion.files for conversion in conversions if not conversion.failed}
    given: dict[str, set[str]] = {}
    for path, files in gives.items():
        given.setdefault(os.path.dirname(path), set()).update(map(os.path.basename, files))
    found = []
    for folder, sources in sorted(folders.items()):
        current = frozenset().union(*(given.get(one, ()) for one in sources))
        names = [
            name for name in listings.of(folder).files if _may_be_generated(name, settings) and name not in current
        ]
        for name, head in heads(folder, names, HEAD_BYTES, settings):
            source = _source_in_banner(head, settings)
            if not source:
                continue
            beside = [os.path.join(one, os.path.basename(source)) for one in sources]
            modular = [one for one in beside if os.path.isfile(one)]
            if gives.keys() >= set(modular):
                is_other = not modular and any(map(os.path.lexists, beside))  # a pipe, or a link to nowhere or itself
                reason = "no longer generates this file" if modular else "does not exist"
                place = Location(os.path.join(folder, name))
                found.append(stale_files.generated_file_orphaned(place, source, "" if is_other else reason))
    return found


def _may_be_generated(name: str, settings: Settings) -> bool:
    """Whether a file is a Python file, no modular file and no `__init__.py`."""
    return name.endswith(".py") and name != "__init__.py" and not is_modular(name, settings)


def _source_in_banner(head: bytes | Exception, settings: Settings) -> str:
    """The modular file that the banner of a file names; "" for a file without a banner, or that may not be read."""
    if isinstance(head, Exception) or _MARK not in head:
        return ""
    source = is_generated(head.decode("utf-8", "replace") + "\n")
    is_python = os.path.basename(source).removesuffix(".py").isidentifier()
    return source if is_python and is_modular(source, settings) else ""  # other tools write the same words
