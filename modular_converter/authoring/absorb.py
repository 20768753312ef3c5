"""An edit of a generated file, carried to the file that its lines come from. A conversion proves each proposal."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from modular_converter.authoring.overrides import overriding_texts
from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.banner import is_generated
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError, Location
from modular_converter.provenance.generated import LineRange, LineSource, line_sources
from modular_converter.reporting.diffs import matching_blocks
from modular_converter.rules import input_files
from modular_converter.settings.layout import modular_of
from modular_converter.settings.values import Settings


MOST_TRIALS = 12
"""Conversions that are tried: an inserted line may belong to the line above or below."""


class Hunk(NamedTuple):
    """Lines of the converted text, from 0 and exclusive, and the lines that the edit has in their place."""

    start: int
    end: int
    lines: tuple[str, ...]


class Absorbed(NamedTuple):
    """The outcome for one file."""

    texts: Mapping[str, str]
    """Path -> its new text; empty where nothing is proven."""
    places: Sequence[LineRange] = ()
    """Where to write what could not be carried."""
    reason: str = ""
    """Why it could not be carried; "" if it was, or if there is no edit."""


def absorb(path: str, settings: Settings, *, to_neighbour: bool = False, wanted: str | None = None) -> Absorbed:
    """Carry the edits of a generated file to its modular file, or to one neighbour.

    Args:
        path: the generated file.
        settings: those of its project.
        to_neighbour: whether a neighbour may be changed where the modular file does not do.
        wanted: the edited text; the file on disk when left out.

    Raises `ConversionError` where a file cannot be read, or where the modular file as it is cannot be converted.
    """
    library = Library(settings)
    modular = modular_of(path, settings)
    if not modular or not library.exists(modular):
        raise ConversionError(input_files.not_generated(Location(path), is_generated(library.text(path))))
    before = _convert(modular, settings, {})
    if path not in before.files:
        errors = [one for one in before.findings if one.is_error]
        if errors:
            raise ConversionError(*errors)
        return Absorbed({}, reason=f"it is not generated from {os.path.basename(modular)}")
    wanted, expected = library.text(path) if wanted is None else wanted, before.files[path]
    if wanted == expected:
        return Absorbed({})
    sources = line_sources(modular, before.files, library)[path]
    hunks = list(_hunks(expected.split("\n"), wanted.split("\n")))
    targets = [modular, *(sorted(_neighbours(hunks, sources, modular)) if to_neighbour else ())]
    aim = {**before.files, path: wanted}
    refusals: list[str] = []
    for target, proposal in _proposed(targets, path, expected, wanted, hunks, sources, library):
        made = _convert(modular, settings, {target: proposal})
        if made.files == aim:
            return Absorbed({target: proposal})
        refusals += [one.message for one in made.findings if one.is_error]
    places = tuple(dict.fromkeys(place for hunk in hunks for place in _places(hunk, sources)))
    reason = "no edit of the modular file was found that gives this text"
    return Absorbed({}, places, f"{reason}; a conversion says: {refusals[0]}" if refusals else reason)


def _proposed(
    targets: Sequence[str],
    path: str,
    expected: str,
    wanted: str,
    hunks: Sequence[Hunk],
    sources: Sequence[LineSource],
    library: Library,
) -> Iterator[tuple[str, str]]:
    """Files with new texts for them: the edited lines in their place, then overrides in the modular file, `targets[0]`."""
    for target in targets:
        proposals = _proposals(library.text(target), target, hunks, sources, _renaming(path, target))
        yield from ((target, one) for one in itertools.islice(dict.fromkeys(proposals), MOST_TRIALS))
    overriding = overriding_texts(path, targets[0], expected, wanted, library)
    yield from ((targets[0], one) for one in itertools.islice(overriding, MOST_TRIALS))


def _convert(modular: str, settings: Settings, overlay: dict[str, str]) -> Conversion:
    return Run(settings, overlay, workers=1).convert([modular])[0]


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[Hunk]:
    """The parts of a text that differ."""
    at, other = 0, 0
    for block in [*matching_blocks(old, new), None]:
        start, end = (block.a, block.b) if block is not None else (len(old), len(new))
        if start > at or end > other:
            yield Hunk(at, start, tuple(new[other:end]))
        if block is not None:
            at, other = block.a + block.size, block.b + block.size


def _places(hunk: Hunk, sources: Sequence[LineSource]) -> Iterator[LineRange]:
    """Where the replaced lines come from; for an insertion, the lines around it."""
    numbers = range(hunk.start, hunk.end) if hunk.end > hunk.start else range(hunk.start - 1, hunk.end + 1)
    for number in numbers:
        if 0 <= number < len(sources):
            yield from sources[number].places


def _neighbours(hunks: Sequence[Hunk], sources: Sequence[LineSource], modular: str) -> set[str]:
    return {place.path for hunk in hunks for place in _places(hunk, sources)} - {modular}


def _renaming(path: str, target: str) -> tuple[str, str]:
    """The names of the generated file's model and of the target's."""
    return os.path.basename(os.path.dirname(path)), os.path.basename(os.path.dirname(target))


def _proposals(
    text: str, target: str, hunks: Sequence[Hunk], sources: Sequence[LineSource], names: tuple[str, str]
) -> Iterator[str]:
    """New texts of a file: each hunk in the lines that it comes from, insertions above or below."""
    ways = [list(_spans(hunk, target, sources)) for hunk in hunks]
    if not all(ways):
        return
    for spans in itertools.islice(itertools.product(*ways), MOST_TRIALS):
        lines = text.split("\n")
        for (start, end), hunk in sorted(zip(spans, hunks), reverse=True):
            lines[start:end] = [_renamed(line, names) for line in hunk.lines]
        yield "\n".join(lines)


def _spans(hunk: Hunk, target: str, sources: Sequence[LineSource]) -> Iterator[tuple[int, int]]:
    """The lines of the target, from 0 and exclusive, in whose place a hunk may stand."""
    if hunk.end > hunk.start:
        numbers = [_line_in(target, sources, number) for number in range(hunk.start, hunk.end)]
        known = [one for one in numbers if one is not None]
        if known and len(known) == len(numbers):
            yield known[0] - 1, known[-1]
        return
    above, below = _line_in(target, sources, hunk.start - 1), _line_in(target, sources, hunk.start)
    if above is not None:
        yield above, above
    if below is not None:
        yield below - 1, below - 1


def _line_in(target: str, sources: Sequence[LineSource], number: int) -> int | None:
    """The line of the target, from 1, that a line of the generated file comes from."""
    if not 0 <= number < len(sources):
        return None
    own = [one for one in sources[number].places if one.path == target]
    return own[0].first if own else None


def _renamed(line: str, names: tuple[str, str]) -> str:
    """A line of the generated file in the words of the target. The proof says whether that was right."""
    old, new = names
    if old == new:
        return line
    cased, other = ("".join(part.title() for part in name.split("_")) for name in names)
    return line.replace(cased, other).replace(old, new).replace(old.upper(), new.upper())
