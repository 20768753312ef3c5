"""`check-modular-conversion --add-ignores`: silence the warnings that there are, each by a comment on its line, so that
only new ones are reported. A file is written if its conversion stays byte for byte and no warning is new.
"""

from __future__ import annotations

import io
import os
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from modular_converter.convert.batch import Run
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.source.library import Library, ignore_comments
from modular_converter.files.atomic_write import write_atomically
from modular_converter.files.generated_files import refuse_change
from modular_converter.files.read import in_form_of, is_installed, root_of
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import input_files
from modular_converter.settings.values import Settings


def add_ignores(conversions: Sequence[Conversion], settings: Settings) -> tuple[int, int]:
    """Write the comments into the modular files; return the number of warnings that they silence, and of files.

    Args:
        conversions: the conversions of the files as they are.
        settings: the settings of the run.

    Raises `ConversionError` for a file that may not be written.
    """
    settings = replace(settings, strict=False)
    library = Library(settings)
    texts: dict[str, str] = {}
    for one in conversions:
        found = [finding for finding in one.findings if _can_be_silenced(finding, one.path)]
        if found:
            texts[one.path] = with_ignores(library.text(one.path), found)
    before = {one.path: one for one in Run(settings).convert(texts)}
    silenced = files = 0
    for after in Run(settings, dict(texts)).convert(texts):
        gone = _silenced(before[after.path], after)
        if gone:
            _write(after.path, texts[after.path], settings)
            silenced, files = silenced + gone, files + 1
    return silenced, files


def with_ignores(text: str, findings: Iterable[Finding]) -> str:
    """The text of a modular file with a comment for each finding that has a line with room for one."""
    lines, closed = text.split("\n"), _lines_within_strings(text)
    codes: dict[int, list[str]] = {}
    for one in findings:
        last = one.location.end_line or one.location.line
        room = (line for line in range(one.location.line, last + 1) if line not in closed)
        if line := next(room, 0):
            codes.setdefault(line, []).append(one.code)
    known = {comment.line: comment for comment in ignore_comments(text)}
    for line, found in codes.items():
        comment = known.get(line)
        entries = ", ".join(dict.fromkeys((*(comment.entries if comment else ()), *sorted(found))))
        old = lines[line - 1]
        new = f"# modular: ignore[{entries}]"
        if comment is not None:
            lines[line - 1] = old[: comment.column - 1] + new + old[comment.end_column - 1 :]
        else:
            lines[line - 1] = f"{old}  {new}"
    return "\n".join(lines)


def _can_be_silenced(finding: Finding, path: str) -> bool:
    return finding.rule.can_be_ignored and finding.location.path == path


def _lines_within_strings(text: str) -> set[int]:
    """The lines at whose end no comment can stand: within a string, or before a line that continues them."""
    closed = {number for number, line in enumerate(text.split("\n"), 1) if line.endswith("\\")}
    started = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):  # f-strings have tokens of their own since Python 3.12
            started = token.start[0]
        if name == "STRING" or name.endswith("STRING_END"):
            closed.update(range(started if name != "STRING" else token.start[0], token.end[0]))
    return closed


def _silenced(before: Conversion, after: Conversion) -> int:
    """How many findings are gone; 0 where the generated files have changed or a finding is new."""
    old, new = (Counter((one.code, one.message) for one in some.findings) for some in (before, after))
    if after.files != before.files or new - old:
        return 0
    return sum((old - new).values())


def _write(path: str, text: str, settings: Settings) -> None:
    if is_installed(os.path.realpath(path)):
        raise ConversionError(input_files.read_only_target(Location(path), "it belongs to an installed package"))
    refuse_change(path, settings)
    write_atomically(path, in_form_of(path, text), root_of(path, settings))
