"""Convert the files of a check, or recall from the cache what that would give."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from modular_converter.cache import Cache
from modular_converter.config import Settings
from modular_converter.diagnostics import Severity
from modular_converter.records import Conversion


def recall(paths: Collection[str], settings: Settings, folder: str | None) -> list[Conversion]:
    """The conversions of modular files, sorted by path; only those are made anew that the cache does not answer for.

    Args:
        folder: the folder of the cache; None to go without.

    Raises `ConversionError` when the formatter is missing.
    """
    if not paths:
        return []
    mild = replace(settings, strict=False)  # what is known does not depend on how heavily warnings weigh
    cache = Cache(folder, mild) if folder else None
    known = {path: found for path in paths if cache and (found := cache.look_up(path))}
    done = known
    if len(known) < len(paths) or not _can_be_ordered(known):
        from modular_converter.runner import Run

        run = Run(mild, workers=mild.workers)
        if cache:
            run.stands = cache.still_holds
        done = {one.path: one for one in run.convert(paths, known)}
    if cache:
        cache.store(one for one in done.values() if one is not known.get(one.path))
    return [_strictly(done[path]) if settings.strict else done[path] for path in sorted(done)]


def _can_be_ordered(conversions: Mapping[str, Conversion]) -> bool:
    """Whether none of them builds on itself by way of others: each may be known from a run without the others."""
    from graphlib import CycleError, TopologicalSorter

    gives = {file: path for path, one in conversions.items() for file in one.files}
    needs = {
        path: {gives[file] for file in one.reads if gives.get(file, path) != path} for path, one in conversions.items()
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError:
        return False
    return True


def _strictly(conversion: Conversion) -> Conversion:
    """The conversion with warnings as errors, which leave no files."""
    if not conversion.diagnostics:
        return conversion
    diagnostics = tuple(one.with_severity(Severity.ERROR) for one in conversion.diagnostics)
    return replace(conversion, files={}, diagnostics=diagnostics)
