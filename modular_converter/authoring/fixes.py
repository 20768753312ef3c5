"""Corrections of modular files: the fixes of findings, each proven by a conversion (its finding is gone, there is no new
one, and the generated files stay byte for byte, unless the fix is unsafe), and comments that silence the warnings that
there are, so that only new ones are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from modular_converter.convert.batch import Run
from modular_converter.convert.source.library import Library, ignore_comments
from modular_converter.files.write import refuse_change, write_sources
from modular_converter.findings import Conversion, Finding, apply_edits
from modular_converter.model import lexer
from modular_converter.settings.values import Settings


def is_wanted(finding: Finding, unsafe: bool) -> bool:
    """Whether a fix is to be applied."""
    return finding.fix is not None and (unsafe or finding.applicability == "safe")


@dataclass(frozen=True)
class FixedFile:
    """A modular file with the fixes that hold."""

    path: str
    old: str
    new: str
    applied: tuple[Finding, ...]
    """The findings that are fixed, in the order of the fixes."""
    refused: tuple[Finding, ...] = ()
    """The findings whose fixes would change more than intended."""


def apply_fixes(path: str, settings: Settings, unsafe: bool) -> FixedFile:
    """Apply the fixes of a modular file until nothing changes, the unsafe ones only if they are wanted. Nothing is written."""
    text = old = Library(settings).text(path)
    now = converted(path, settings, {path: text})
    applied: list[Finding] = []
    refused: list[Finding] = []  # findings of the present text: another fix may have been in the way
    while not now.failed:
        waiting = (one for one in now.findings if is_wanted(one, unsafe) and one not in refused)
        finding = next(waiting, None)
        if finding is None:
            break
        fixed = with_fix(finding, now, settings, {path: text})
        if fixed is None:
            refused.append(finding)
        else:
            text, now, refused = *fixed, []
            applied.append(finding)
    return FixedFile(path, old, text, tuple(applied), tuple(refused))


def with_fix(
    finding: Finding, before: Conversion, settings: Settings, texts: Mapping[str, str]
) -> tuple[str, Conversion] | None:
    """The text of a modular file with the fix of one finding, and its conversion; None where the fix does not hold.

    Args:
        before: the conversion that gave it.
        texts: what is read in place of files on disk, the modular file included.
    """
    if finding.fix is None:
        return None
    changed = apply_edits(texts[before.path], finding.fix.edits)
    after = converted(before.path, settings, {**texts, before.path: changed})
    return (changed, after) if _holds(finding, before, after) else None


def converted(path: str, settings: Settings, texts: dict[str, str]) -> Conversion:
    """The conversion of a modular file, with texts that are read in place of files on disk."""
    return Run(settings, texts, workers=1).convert([path])[0]


def _holds(finding: Finding, before: Conversion, after: Conversion) -> bool:
    is_same = finding.rule.unsafe_fix or after.files == before.files
    return not after.failed and is_same and _key(finding) in _gone(before, after)


def _gone(before: Conversion, after: Conversion) -> Counter[tuple[str, str]]:
    """The findings that a change of a file cures, and how often; none where one is new."""
    old, new = (Counter(map(_key, one.findings)) for one in (before, after))
    return Counter() if new - old else old - new


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.message


def add_ignores(conversions: Sequence[Conversion], settings: Settings) -> tuple[int, int]:
    """Write the comments into the modular files; return the number of warnings that they silence, and of files.

    Args:
        conversions: the conversions of the files as they are.

    Raises `ConversionError` for a file that may not be written.
    """
    settings = replace(settings, strict=False)
    library = Library(settings)
    texts: dict[str, str] = {}
    for one in conversions:
        found = [some for some in one.findings if some.rule.can_be_ignored and some.location.path == one.path]
        if found:
            texts[one.path] = with_ignores(library.text(one.path), found)
    before = {one.path: one for one in Run(settings).convert(texts)}
    silenced = files = 0
    for after in Run(settings, dict(texts)).convert(texts):
        gone = _gone(before[after.path], after)
        if gone and after.files == before[after.path].files:
            write_modular(after.path, texts[after.path], settings)
            silenced, files = silenced + gone.total(), files + 1
    return silenced, files


def with_ignores(text: str, findings: Iterable[Finding]) -> str:
    """The text of a modular file with a comment for each finding that has a line with room for one."""
    lines, within = text.split("\n"), lexer.lines_within_strings(text)
    closed = {number for number, line in enumerate(lines) if number in within or line.endswith("\\")}
    codes: dict[int, list[str]] = {}
    for one in findings:
        last = one.location.end_line or one.location.line
        room = (line for line in range(one.location.line, last + 1) if line - 1 not in closed)
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


def write_modular(path: str, text: str, settings: Settings) -> None:
    """Write the corrected text of a modular file. Raises `ConversionError` for one that may not be written."""
    refuse_change(path, settings)
    write_sources({path: text}, settings)
