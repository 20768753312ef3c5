"""The rows of a coverage run in a file, one a line, to resume from and to append to; a run may be killed at any time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modular_converter.parallel.errors import PlanError


Row = dict[str, Any]


class RowFile:
    """The rows of an earlier run.

    An incomplete last line of a killed run is left out, together with the other rows of its folder, which is run again;
    the next write replaces them.

    Raises ``PlanError`` if the file cannot be read, or a line is not a row; the message names the line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[Row] = []
        ends: list[int] = []
        lines = _lines(path)
        end = 0
        for number, line in enumerate(lines, start=1):
            end += len(line)
            if not line.strip():
                continue
            row = _parsed(line)
            if row is _CUT and number == len(lines) and line.startswith(b'{"'):
                self._leave_out_last_folder(ends)
            elif not isinstance(row, dict) or not isinstance(row.get("name"), str):
                raise PlanError(
                    f"{path}: line {number} is not a row of an earlier run; take it out, or give another file to --resume"
                )
            else:
                self.rows.append(row)
                ends.append(end)
        self._end = ends[-1] if ends else 0

    def _leave_out_last_folder(self, ends: list[int]) -> None:
        last = self.rows[-1]["name"] if self.rows else ""
        while last.startswith("folder:") and self.rows and self.rows[-1]["name"] == last:
            self.rows.pop()
            ends.pop()

    def append(self, found: Sequence[Row]) -> None:
        """Add rows after the last complete row."""
        text = "".join(json.dumps(row) + "\n" for row in found)
        with self.path.open("ab+") as file:
            file.truncate(self._end)
            file.seek(max(self._end - 1, 0))
            file.write((b"" if file.read(1) in (b"\n", b"") else b"\n") + text.encode())
            self._end = file.tell()
        self.rows += found


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True) if path.exists() else []
    except OSError as error:
        raise PlanError(f"{path}: it cannot be read ({error}); give another file to --resume") from error


_CUT = object()


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return _CUT
