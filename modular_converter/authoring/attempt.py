"""One draft, converted in memory and compared with the flat model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modular_converter.authoring.comparison import FileDifference, compare_models, compare_roughly
from modular_converter.authoring.draft import Draft, closed, modular_text
from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.format import format_files
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
    def has_come_back(self) -> bool:
        """Whether every file is proven."""
        return not self.conversion.failed and all(one.has_come_back for one in self.differences)

    @property
    def reordered(self) -> Mapping[str, str]:
        """Generated file that equals its flat file except for the order of definitions -> where the order differs."""
        places = {one.file.path: one.order for one in self.differences if one.file.is_generated and one.is_same_code}
        return {path: f"from `{order[0]}` on" for path, order in places.items() if order}

    @property
    def has_same_code(self) -> bool:
        """Whether every file is proven, or at least has the same definitions in another order."""
        if self.conversion.failed:
            return False
        return all(one.has_come_back or one.file.path in self.reordered for one in self.differences)

    @property
    def lines_back(self) -> int:
        """The number of lines of the flat files that are proven."""
        if self.conversion.failed:
            return 0
        return sum(one.file.text.count("\n") for one in self.differences if one.has_come_back)

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
    settings = library.settings
    path = draft.flat.modular
    text = format_files({path: modular_text(draft)}, settings).texts[path]
    conversion = Run(settings, {path: text}, workers=1).convert([path])[0]
    if not conversion.failed:
        differences = compare_models(draft.flat, conversion.files, library)
        return Proof(draft, text, conversion, differences, conversion.files, reasons)
    rough = convert(path, Library(settings, {path: text})).files
    return Proof(draft, text, conversion, compare_roughly(draft.flat, rough) if rough else (), rough, reasons)
