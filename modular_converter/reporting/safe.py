"""Text of a stranger's tree made safe for a terminal and a CI log: no control characters, no endless lines."""

from __future__ import annotations

import re


WIDEST = 300
"""Characters of a line that are shown."""
WIDEST_MESSAGE = 2000
"""The same of a message, which may hold several paths."""
_UNFIT = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but for the tab, line separators, and signs that change the direction of writing."""
_COMMAND = re.compile(r"^(\s*):(?=:)")
_OLD_COMMAND = re.compile(r"#(?=#\[)")
"""Text that GitHub and Azure take for commands in a log: the first at the start of a line, the second anywhere."""


def escaped(text: str) -> str:
    """The text on one line; characters that are unsafe in a terminal are shown as `\\x1b` or `\\u202e`."""
    return _UNFIT.sub(_escape, text)


def harmless(text: str) -> str:
    """A line, or its start, changed if it looks like a command in a log."""
    return _OLD_COMMAND.sub(r"\\x23", _COMMAND.sub(r"\1\\x3a", text))


def report_line(text: str, widest: int = WIDEST) -> str:
    """A line of a report: escaped, harmless, and cut with `…`."""
    if len(text) <= widest and text.isprintable() and "::" not in text and "##[" not in text:
        return text  # nearly all lines
    return harmless(escaped(text[:widest])) + ("…" if len(text) > widest else "")


def message(text: str) -> str:
    """A text of several lines, each made safe; all but the first are indented, so that none looks like a finding."""
    return "\n    ".join(report_line(one, WIDEST_MESSAGE) for one in text.split("\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
