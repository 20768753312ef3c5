"""What a check works with: conversions that still hold from earlier runs, those that have to be made, and differences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.check.cache.lookup import Cache
from modular_converter.check.cache.stale import StaleConversions
from modular_converter.convert.silence import with_selected_findings
from modular_converter.findings import Conversion, Finding
from modular_converter.settings.values import Settings


if TYPE_CHECKING:
    from modular_converter.check.compare import Difference
    from modular_converter.convert.schedule import Readings
    from modular_converter.convert.source.library import Library


class Conversions(NamedTuple):
    """The conversions of all files of a check, by modular file."""

    known: Mapping[str, Conversion]
    """Conversions of earlier runs. Their generated files are current on disk."""
    made: Mapping[str, Conversion]
    """Conversions of this run."""

    @property
    def all(self) -> Sequence[Conversion]:
        """All of them, sorted by path."""
        return [one for _, one in sorted({**self.known, **self.made}.items())]


class Differences(NamedTuple):
    """The differences of a check: written, left, or unreadable."""

    left: Sequence[Difference] = ()
    """Those that were not written, sorted by path."""
    written: Sequence[str] = ()
    failures: Sequence[Finding] = ()
    """The files that could not be read or written."""
    wrong_versions: Sequence[Finding] = ()
    """The errors about the formatter's version, the first with the number of files that differ for it."""


Bar = Callable[[int], AbstractContextManager[Callable[[int], None]]]
"""Given a number of files, a context with the function that is called with how many more of them are done."""


def no_bar(files: int) -> AbstractContextManager[Callable[[int], None]]:
    """Show no progress."""
    return nullcontext(lambda done: None)


def find_conversions(
    paths: Collection[str],
    settings: Settings,
    cache_folder: str | None,
    *,
    errors_only: bool = False,
    bar: Bar = no_bar,
    stale: Readings | None = None,
) -> Conversions:
    """Look conversions up in the cache, convert the other files, and store what is new.

    Args:
        cache_folder: None to go without a cache.
        errors_only: leave out the warnings of known conversions, unless the settings make errors of them.
        bar: shows the progress of the files that have to be converted.
        stale: given where most generated files are stale, and stay so: what is made is then kept with its texts, and heirs
            that read nothing of what differs are known to be current. See `Run.stale`.

    Raises `ConversionError` when the formatter is missing.
    """
    if not paths:
        return Conversions({}, {})
    cache = Cache(cache_folder, settings, errors_only=errors_only and not settings.strict) if cache_folder else None
    known = cache.look_up(paths) if cache else {}
    if settings.strict or settings.silences:  # the cache stores all findings with their own weight
        known = {path: with_selected_findings(one, settings) for path, one in known.items()}
    if len(known) == len(paths) and ((cache and cache.is_ordered) or not _form_cycle(known, settings)):
        return Conversions(known, {})
    from modular_converter.convert.batch import Run  # loads the whole converter

    if stale is not None:
        known = {**stale.current([path for path in paths if path not in known]), **known}
    with bar(len(paths) - len(known)) as advance:
        kept = StaleConversions(cache_folder, settings) if cache_folder and stale is not None else None
        run = Run(settings, workers=settings.workers, progress=advance, kept=kept, stale=stale)
        converted = run.convert(paths, known)
    made = {one.path: one for one in converted if one is not known.get(one.path)}
    if kept:
        kept.keep(made.values())
    elif cache:
        cache.store(made.values())
    return Conversions({path: one for path, one in known.items() if path not in made}, made)


def convert_given(texts: Mapping[str, str], settings: Settings) -> Conversions:
    """The conversions of modular files whose texts are given; the cache knows only files."""
    from modular_converter.convert.batch import Run

    return Conversions({}, {one.path: one for one in Run(settings, dict(texts)).convert(texts)})


def files_required(
    paths: Collection[str], settings: Settings, cache_folder: str | None, library: Library
) -> dict[str, frozenset[str]]:
    """`required_files` of modular files; those that the cache knows are not parsed."""
    known = Cache(cache_folder, settings).look_up(paths) if cache_folder else {}
    from modular_converter.convert.schedule import required_files  # the cache may know them all

    return {path: known[path].requires if path in known else required_files(path, library) for path in paths}


def _form_cycle(known: Mapping[str, Conversion], settings: Settings) -> bool:
    """Whether some of the files need each other. The cache may know each of them from a run without the others."""
    from modular_converter.convert.schedule import cycles, dependencies  # the cache mostly has the answer

    return bool(cycles(dependencies({path: one.requires for path, one in known.items()}, settings)))
