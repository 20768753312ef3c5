"""The audit of the marks in some files: each is identical, drifted, dangling or invisible. The definitions that marks
name are found in the sources of the library, which are read and never imported.
"""

from __future__ import annotations

import enum
import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.source.library import Library
from modular_converter.files.write import is_generated
from modular_converter.findings import UNPARSABLE, ConversionError, Finding, did_you_mean, locate_parse_error
from modular_converter.marks.units import (
    CopyMark,
    DefinitionLines,
    DefinitionUnits,
    agree,
    dedented,
    definition_places,
    end_of_copy,
    find_marks,
    named,
    same_lines,
    units_of,
)
from modular_converter.rules import input_files
from modular_converter.settings.disk import upwards
from modular_converter.settings.values import Settings


INDENT = 4


class MarkVerdict(enum.Enum):
    """The verdict about a mark."""

    IDENTICAL = "identical"
    DRIFTED = "drifted"
    """The copy differs from its source."""
    DANGLING = "dangling"
    """The source does not exist."""
    INVISIBLE = "invisible"
    """A checker that looks for the exact form does not see it."""


@dataclass(frozen=True)
class Audited:
    """A mark with its verdict."""

    path: str
    mark: CopyMark
    verdict: MarkVerdict
    reason: str = ""
    name: str = ""
    """The dotted name, in its file, of the definition that is marked; "" for an invisible mark."""
    lines: tuple[int, int] = (0, 0)
    """Its first and last line in the file, from 1, without decorators."""
    source: DefinitionUnits | None = None
    """For a drifted copy: the text that it should have, formatted."""
    copy: DefinitionUnits | None = None
    """For a drifted copy: the text that it has, formatted."""

    @property
    def key(self) -> tuple[str, str, str]:
        """A key that stays the same when lines above the mark are added or removed."""
        return self.path, self.name, self.mark.text


@dataclass(frozen=True)
class Audit:
    """All marks of some files."""

    marks: tuple[Audited, ...]
    """In the order of the files and lines."""
    in_generated: int
    """The number of marks in generated files; they are left out, since nobody edits these files."""
    findings: tuple[Finding, ...] = ()
    """Findings about files that could not be read."""


def audit(paths: Iterable[str], library: Library) -> Audit:
    """Judge the marks of some files. A copy is compared as the library formats it.

    Raises `ConversionError` where the formatter cannot be used.
    """
    found: list[Audited] = []
    findings: list[Finding] = []
    in_generated = 0
    sources = Sources(library)
    for path in paths:
        try:
            text = library.text(path)
            marks = find_marks(text, library.settings.copy_comment, library.settings.package)
            if is_generated(text):
                in_generated += len(marks)
            elif marks:
                found += _in_file(path, text, marks, sources)
        except ConversionError as error:
            findings += error.findings
    return Audit(tuple(_formatted(found, library.settings)), in_generated, tuple(findings))


def _in_file(path: str, text: str, marks: Sequence[CopyMark], sources: Sources) -> Iterator[Audited]:
    """The verdicts of one file, before anything is formatted."""
    try:
        places = {one.first: one for one in sources.places(path)}
    except UNPARSABLE as error:
        raise ConversionError(input_files.syntax_error(*locate_parse_error(path, error))) from None
    for mark in marks:
        place = places.get(mark.line + 1)
        if mark.flaw or place is None:
            reason = mark.flaw or "it does not stand directly above a definition"
            yield Audited(path, mark, MarkVerdict.INVISIBLE, reason)
        else:
            yield _judge(path, mark, place, text, sources)


def _judge(path: str, mark: CopyMark, place: DefinitionLines, text: str, sources: Sources) -> Audited:
    name = place.name.rpartition(".")[2]
    last = end_of_copy(text, place)
    audited = Audited(path, mark, MarkVerdict.IDENTICAL, name=place.name, lines=(place.first, last))
    if sources.is_at(mark.source, path, place.name):
        return Audited(path, mark, MarkVerdict.INVISIBLE, "it names the definition below it as its own source")
    try:
        texts = sources.texts(mark.source, path)
    except NotFoundError as error:
        return replace(audited, verdict=MarkVerdict.DANGLING, reason=str(error))
    beginning = sources.library.settings.copy_comment
    own = dedented(text, place.first, last)
    limit = sources.library.settings.max_file_bytes
    expected = [_as_copied(one, mark, name, limit) for one in texts]
    if any(same_lines(one, own, beginning) for one in expected):
        return audited
    copy = units_of(own, beginning, is_source=False)
    candidates = [units_of(one, beginning, is_source=True) for one in expected]
    if any(agree(one, copy) for one in candidates):
        return audited
    return replace(audited, verdict=MarkVerdict.DRIFTED, source=candidates[0], copy=copy)


def _as_copied(text: str, mark: CopyMark, name: str, limit: int) -> str:
    """The text of the source with the replacements of the mark. The definition keeps the name that it has in the copy."""
    for replacement in mark.replacements:
        text = replacement.apply(text, limit)
    return named(text, name)


def _formatted(audits: Sequence[Audited], settings: Settings) -> Iterator[Audited]:
    """The audits, with the definitions that differ formatted as the library formats them and compared again."""
    texts: dict[str, str] = {}
    for number, one in enumerate(audits):
        for part, units in (("source", one.source), ("copy", one.copy)):
            if units is not None:
                texts[_key(one, number, part)] = nested(units.text, depth(one))
    formatted = format_files(texts, settings).texts if texts else {}
    for number, one in enumerate(audits):
        if one.source is None or one.copy is None:
            yield one
            continue
        source, copy = (
            units_of(
                unnested(formatted[_key(one, number, part)], depth(one)),
                settings.copy_comment,
                is_source=part == "source",
            )
            for part in ("source", "copy")
        )
        if agree(source, copy):
            yield replace(one, verdict=MarkVerdict.IDENTICAL, source=None, copy=None)
        else:
            yield replace(one, source=source, copy=_with_marks(copy, one.copy))


def _key(one: Audited, number: int, part: str) -> str:
    return os.path.join(os.path.dirname(one.path), f"_{part}_{number}.py")


def depth(one: Audited) -> int:
    """The number of blocks around a definition."""
    return (one.mark.column - 1) // INDENT


def nested(text: str, levels: int) -> str:
    """A definition inside of classes, so that a formatter breaks its lines where the file does."""
    holders = "".join(f"{' ' * INDENT * level}class _:\n" for level in range(levels))
    return holders + textwrap.indent(text, " " * INDENT * levels)


def unnested(text: str, levels: int) -> str:
    """The inverse of `nested`."""
    return textwrap.dedent("\n".join(text.split("\n")[levels:])).strip("\n") + "\n"


def _with_marks(formatted: DefinitionUnits, raw: DefinitionUnits) -> DefinitionUnits:
    """The formatted units with the marks above the units as they were."""
    if len(formatted.body) != len(raw.body):  # isort makes two imports of one, in classes too
        return formatted
    body = tuple(replace(new, marks=old.marks) for new, old in zip(formatted.body, raw.body))
    return replace(formatted, body=body)


LONGEST = 1000
"""The most characters of a dotted name: for each of its parts a module is searched."""


class NotFoundError(LookupError):
    """Raised for a definition that does not exist; the message names the missing part."""


@dataclass(frozen=True)
class Sources:
    """The modules that marks name, each read and parsed once."""

    library: Library
    _places: dict[str, list[DefinitionLines]] = field(default_factory=dict)
    """File -> its definitions."""

    def texts(self, dotted: str, path: str) -> tuple[str, ...]:
        """The texts of the definitions of a dotted name, mostly one; a property has one for each accessor.

        Args:
            dotted: `transformers.models.bert.modeling_bert.BertLayer.forward`.
            path: the file with the mark, which lies in the same library.

        Raises `NotFoundError`.
        """
        for root in self._roots(path, dotted.partition(".")[0]):
            if found := self._in(root, dotted):
                return found
        raise NotFoundError(self._reason(dotted, path))

    def is_at(self, dotted: str, path: str, name: str) -> bool:
        """Whether a dotted name means the definition `name` of the file at `path` itself."""
        roots = self._roots(path, dotted.partition(".")[0])
        return any(self._module(root, dotted) == (path, name.split(".")) for root in roots)

    def _roots(self, path: str, package: str) -> Iterator[str]:
        """The folders that may be the package: beside its models, and the one that an import would mean."""
        folder, names = os.path.dirname(path), self.library.settings.models_names
        models = (os.path.dirname(one) for one in upwards(folder) if os.path.basename(one) in names)
        found = next(models, None), self.library.find_package(package, folder)
        yield from (one for one in found if one is not None)

    def _in(self, root: str, dotted: str) -> tuple[str, ...]:
        module, names = self._module(root, dotted)
        text = self.library.text_if_readable(module) if names else None
        if text is None:
            return ()
        name = ".".join(names)
        try:
            places = [one for one in self.places(module) if one.name == name]
        except UNPARSABLE:
            return ()
        return tuple(dedented(text, one.first, one.last) for one in places)

    def places(self, path: str) -> list[DefinitionLines]:
        """The definitions of a file. Raises what `ast.parse` does for a file that is not Python."""
        if path not in self._places:
            self._places[path] = definition_places(self.library.text(path))
        return self._places[path]

    def _module(self, root: str, dotted: str) -> tuple[str, list[str]]:
        """The file of the longest part of a dotted name that is a module, and the rest of the name."""
        parts = dotted.split(".")[1:] if len(dotted) <= LONGEST else []
        for length in range(len(parts), 0, -1):
            stem = os.path.join(root, *parts[:length])
            if file := self.library.resolver.file_of_stem(stem):
                return file, parts[length:]
        return "", []

    def _reason(self, dotted: str, path: str) -> str:
        for root in self._roots(path, dotted.partition(".")[0]):
            module, names = self._module(root, dotted)
            if names and not (len(names) > 1 and os.path.basename(module) == "__init__.py"):
                try:
                    known = [*self.library.module(module).definitions]
                except ConversionError:
                    return f"{os.path.basename(module)} cannot be read"
                hint = did_you_mean(names[0], known).strip()
                return f"{os.path.basename(module)} has no `{'.'.join(names)}`" + (f". {hint}" if hint else "")
        return "there is no such module"
