"""One draft, converted in memory and compared with the flat model."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from modular_converter.authoring.comparison import Comparisons, FileDifference, compare_models, compare_roughly
from modular_converter.authoring.draft import Draft, closed, modular_text
from modular_converter.authoring.flat_model import FlatModel
from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.format import FormatMemory, format_files
from modular_converter.convert.pipeline import convert
from modular_converter.convert.source.library import Library


@dataclass(frozen=True)
class Proof:
    """A draft with its conversion."""

    draft: Draft
    text: str
    """The modular file, formatted."""
    conversion: Conversion
    differences: tuple[FileDifference, ...]
    texts: Mapping[str, str]
    """Path -> generated text; if the conversion fails, the texts before the examination, if any."""
    reasons: Mapping[str, str]
    """Definition -> the reason why it is longer than at first."""

    @property
    def round_trips(self) -> bool:
        """Whether every file is proven."""
        return not self.conversion.failed and all(one.round_trips for one in self.differences)

    @property
    def rewritten(self) -> Mapping[str, str]:
        """Generated file with the same code -> the difference, of order or layout."""
        return {one.file.path: one.rewritten for one in self.differences if one.rewritten}

    @property
    def has_same_code(self) -> bool:
        """Whether every file is proven, or at least has the same code in another order or layout."""
        return not self.conversion.failed and all(one.round_trips or one.rewritten for one in self.differences)

    @property
    def lines_back(self) -> int:
        """The number of lines of the flat files that are proven."""
        if self.conversion.failed:
            return 0
        return sum(one.file.text.count("\n") for one in self.differences if one.round_trips)

    @property
    def sources(self) -> frozenset[str]:
        """The neighbours' files that the modular file takes from."""
        return self.conversion.requires

    @property
    def lines(self) -> int:
        """The lines of the modular file."""
        return self.text.count("\n")


def attempt(draft: Draft, library: Library, reasons: Mapping[str, str]) -> Proof:
    """Convert a draft in memory and compare the result with the flat model. Nothing is written."""
    draft = closed(draft)
    known = _known(draft.flat, library)
    text = modular_text(draft)
    if text not in known.outcomes:
        _format([text], draft.flat, library)
        known.outcomes[text] = _outcome(known.modular[text], draft.flat, library, known)
    return Proof(draft, *known.outcomes[text], reasons)


def format_ahead(drafts: Sequence[Draft], library: Library) -> None:
    """Format the modular files of drafts of one model, all at once: to start the formatter takes longest."""
    _format([modular_text(closed(draft)) for draft in drafts], drafts[0].flat, library)


def _format(drafts: Collection[str], flat: FlatModel, library: Library) -> None:
    known = _known(flat, library)
    new = {*drafts} - known.modular.keys()
    stem = flat.modular.removesuffix(".py")
    places = {f"{stem}_{number}.py" if number else flat.modular: text for number, text in enumerate(sorted(new))}
    texts = format_files(places, library.settings).texts
    known.modular.update((text, texts[place]) for place, text in places.items())


Outcome = tuple[str, Conversion, tuple[FileDifference, ...], Mapping[str, str]]
"""A modular file, its conversion, the differences, and the generated texts."""


@dataclass(frozen=True)
class _Known:
    """The results of the drafts of one model. One in six is like one before; two in three give no other file."""

    modular: dict[str, str] = field(default_factory=dict)
    """Modular file -> the same, formatted."""
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """Modular file, not formatted -> what it gave."""
    formats: FormatMemory = field(default_factory=FormatMemory)
    comparisons: Comparisons = field(default_factory=dict)


@functools.lru_cache(maxsize=1)
def _known(flat: FlatModel, library: Library) -> _Known:
    return _Known()


def _outcome(text: str, flat: FlatModel, library: Library, known: _Known) -> Outcome:
    path = flat.modular
    run = Run(library.settings, {path: text}, workers=1, format=known.formats.format, read=library)
    conversion = run.convert([path])[0]
    if not conversion.failed:
        return text, conversion, compare_models(flat, conversion.files, library, known.comparisons), conversion.files
    rough = convert(path, library.under({path: text})).files
    return text, conversion, compare_roughly(flat, rough) if rough else (), rough
