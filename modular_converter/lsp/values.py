"""The values of the language server protocol: places, findings, edits and locations, in the units of the client."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lsprotocol import types
from pygls.uris import from_fs_path, to_fs_path
from pygls.workspace import PositionCodec

from modular_converter.findings import Edit, Finding, Location, split_lines
from modular_converter.provenance.generated import LineRange


SOURCE = "modular-convert"
_SEVERITY = {True: types.DiagnosticSeverity.Error, False: types.DiagnosticSeverity.Warning}


def path_of(uri: str) -> str:
    """The absolute path of a document; "" for one that is no file."""
    path = to_fs_path(uri) if uri.startswith("file:") else None
    return os.path.abspath(path) if path else ""


def uri_of(path: str) -> str:
    """The URI of a file."""
    return from_fs_path(path) or ""


@dataclass(frozen=True)
class Values:
    """Makes values of the protocol for one client, which may count columns in UTF-16."""

    codec: PositionCodec
    text: Callable[[str], str]
    """The text of a file as the editor has it; "" for one that cannot be read."""

    def place(self, path: str, position: types.Position) -> tuple[int, int]:
        """Line and column of a position, in characters from 1."""
        found = self.codec.position_from_client_units(split_lines(self.text(path)), position)
        return found.line + 1, found.character + 1

    def position(self, path: str, line: int, column: int) -> types.Position:
        """The position of a line and column, in characters from 1."""
        lines = split_lines(self.text(path))
        if not 0 < line <= len(lines):
            return types.Position(max(line - 1, 0), 0)
        return types.Position(line - 1, self.codec.client_num_units(lines[line - 1][: column - 1]))

    def range(self, location: Location) -> types.Range:
        """The range of a place: one without an end reaches to the end of its line."""
        start = self.position(location.path, location.line, location.column)
        if location.end_line is None or location.end_column is None:
            return types.Range(start, self.position(location.path, location.line, 1_000_000))
        return types.Range(start, self.position(location.path, location.end_line, location.end_column))

    def location(self, place: Location | LineRange) -> types.Location:
        """A place in a file, or some lines of it."""
        if isinstance(place, LineRange):
            place = Location(place.path, place.first, 1, place.last, 1_000_000)
        return types.Location(uri_of(place.path), self.range(place))

    def diagnostic(self, finding: Finding, path: str) -> types.Diagnostic:
        """A finding of a modular file's conversion; one about another file stands at the top, and leads there."""
        own = finding.location.path == path
        others = (*(() if own else (finding.location,)), *finding.related)
        related = [types.DiagnosticRelatedInformation(self.location(one), finding.message) for one in others]
        return types.Diagnostic(
            range=self.range(finding.location if own else Location(path)),
            message=f"{finding.message}\n{finding.help}".rstrip(),
            severity=_SEVERITY[finding.is_error],
            code=finding.code,
            source=SOURCE,
            related_information=related or None,
        )

    def edits(self, path: str, edits: Iterable[Edit]) -> list[types.TextEdit]:
        """Edits of a file."""
        return [
            types.TextEdit(self.range(Location(path, one.line, one.column, one.end_line, one.end_column)), one.text)
            for one in edits
        ]

    def workspace_edit(self, edits: Mapping[str, Iterable[Edit]]) -> types.WorkspaceEdit:
        """Edits of several files, by path."""
        return types.WorkspaceEdit(changes={uri_of(path): self.edits(path, some) for path, some in edits.items()})


def changed_lines(old: str, new: str) -> list[Edit]:
    """The edit that makes one text of another: the lines between the first and the last that differ."""
    before, after = old.split("\n"), new.split("\n")
    first = next(
        (n for n, (one, other) in enumerate(zip(before, after)) if one != other), min(len(before), len(after))
    )
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    if old == new:
        return []
    end = len(before) - last
    text = "\n".join(after[first : len(after) - last])
    if end < len(before):  # up to the beginning of the next line
        return [Edit(first + 1, 1, end + 1, 1, text + "\n" if len(after) - last > first else "")]
    start = (first + 1, 1) if first < len(before) else (first, len(before[first - 1]) + 1)
    text = text if first < len(before) else "\n" + text
    return [Edit(*start, len(before), len(before[-1]) + 1, text)]
