"""MC102: a file whose bytes are not UTF-8."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC102",
    name="not-utf8",
    severity=Severity.ERROR,
    summary="the file is not encoded in UTF-8",
    explanation="""\
Sources are read and written as UTF-8 on every platform, so that a generated file is the same wherever it is made.
This file holds bytes that are not UTF-8. Usually an editor has saved it in a local encoding such as Latin-1 or
Windows-1252.

Save it as UTF-8 in the editor, or convert it: `iconv -f latin1 -t utf-8 FILE > FILE.new`.
""",
)


def diagnose(location: Location, byte: int, offset: int) -> Finding:
    """`byte` is the first one that does not fit, `offset` its place in the file from 0."""
    return Finding(
        RULE,
        location,
        f"the file is not UTF-8: byte 0x{byte:02x} at offset {offset}",
        help="Save the file as UTF-8.",
    )


def in_the_text(path: str, text: str, position: int) -> Finding:
    """The character of a text at this position, from 0, has no encoding."""
    before = text[:position]
    line, column = before.count("\n") + 1, position - before.rfind("\n")
    return Finding(
        RULE,
        Location(path, line, column),
        f"the text cannot be encoded in UTF-8: it holds the lone surrogate U+{ord(text[position]):04X}",
        help="Write the escape of the character in its place, or decode the text without `surrogateescape`.",
    )


def in_the_path(location: Location) -> Finding:
    """`location` is a generated file that would quote a path, as its banner does."""
    return Finding(
        RULE,
        location,
        "the path of its modular file is not UTF-8, so the generated file cannot name it",
        help="Rename the folder or file.",
    )
