"""Convert the files of a check, or recall from the cache what that would give."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from modular_converter.check.cache.lookup import Cache
from modular_converter.convert.conversion import Conversion
from modular_converter.settings.values import Settings


def recall(
    paths: Collection[str], settings: Settings, folder: str | None, *, errors_only: bool = False
) -> list[Conversion]:
    """The conversions of modular files, sorted by path; only those are made anew that the cache does not answer for.

    Args:
        folder: the folder of the cache; None to go without.
        errors_only: leave out the warnings of what the cache knows, unless the settings are strict.

    Raises `ConversionError` when the formatter is missing.
    """
    if not paths:
        return []
    cache = Cache(folder, settings, errors_only=errors_only and not settings.strict) if folder else None
    known = {path: found for path in paths if cache and (found := cache.look_up(path))}
    if settings.strict:  # what is known does not depend on how heavily warnings weigh
        known = {path: one.strictly() for path, one in known.items()}
    done = known
    if len(known) < len(paths) or not _can_be_ordered(known):
        from modular_converter.convert.batch import Run

        run = Run(settings, workers=settings.workers)
        if cache:
            run.stands = cache.still_holds
        done = {one.path: one for one in run.convert(paths, known)}
    if cache:
        cache.store(one for one in done.values() if one is not known.get(one.path))
    return [done[path] for path in sorted(done)]


def _can_be_ordered(conversions: Mapping[str, Conversion]) -> bool:
    """Whether none of them builds on itself by way of others: each may be known from a run without the others."""
    from graphlib import CycleError, TopologicalSorter

    gives = {file: path for path, one in conversions.items() for file in one.files}
    needs = {
        path: {gives[file] for file in gives.keys() & one.reads.keys()} - {path} for path, one in conversions.items()
    }
    try:
        TopologicalSorter(needs).prepare()
    except CycleError:
        return False
    return True
