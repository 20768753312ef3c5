"""How reports show paths, counts with their noun, and text of a stranger's tree: without control characters and endless
lines, so that it is safe for a terminal and a CI log.
"""

from __future__ import annotations

import os
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


WORKSPACE = "GITHUB_WORKSPACE"
"""The variable that names the checkout in GitHub Actions, whatever folder a step works in."""


def shown_path(path: str, folder: str) -> str:
    """`path` for people: relative to `folder` when it lies inside, and without control characters."""
    return escaped(_relative(path, folder))


def names_a_file(path: str) -> bool:
    """Whether a place is in a file. Other places, such as `--changed-since` or the name of a model, are for people
    only.
    """
    return path.endswith((".py", ".toml")) or os.path.exists(path)


def shown_posix(path: str, folder: str) -> str:
    """`path` for machines: as it is, relative to `folder` when it lies inside, with `/` between the parts."""
    return _relative(path, folder).replace(os.sep, "/")


def in_checkout(path: str, folder: str) -> str:
    """The same for a service that knows the files of a checkout: relative to the checkout of GitHub Actions, if inside."""
    workspace = os.environ.get(WORKSPACE)
    if workspace and os.path.isabs(workspace):
        absolute = os.path.join(folder, path)
        for root in (workspace, os.path.realpath(workspace)):
            inside = _relative(absolute, root)
            if not os.path.isabs(inside):
                return inside.replace(os.sep, "/")
    return shown_posix(path, folder)


def _relative(path: str, folder: str) -> str:
    if not os.path.isabs(path):
        return path
    try:
        relative = os.path.relpath(path, folder)
    except ValueError:  # another drive
        return path
    return path if relative.split(os.sep, 1)[0] == os.pardir else relative


def count(number: int, noun: str) -> str:
    """`1 modular file`, `3 modular files`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
