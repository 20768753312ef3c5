"""Comments `# modular: ignore[MC307]` of a modular file. They silence findings and never reach a generated file."""

from __future__ import annotations

import io
import re
import tokenize
from typing import NamedTuple


_COMMENT = re.compile(r"#\s*modular:\s*ignore(?![\w-])(?:\[([^\]\n]*)\])?")


class IgnoreComment(NamedTuple):
    """One comment. Line and columns count from 1, the end is exclusive."""

    line: int
    column: int
    end_column: int
    entries: tuple[str, ...]
    """Codes, names and prefixes as written; empty where the comment names none."""


def ignore_comments(text: str) -> tuple[IgnoreComment, ...]:
    """The comments of a text in order. A text that is not Python has none."""
    if not _COMMENT.search(text):
        return ()
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if match is not None:
                entries = tuple(entry.strip() for entry in (match[1] or "").split(",") if entry.strip())
                line, column = token.start
                found.append(IgnoreComment(line, column + match.start() + 1, column + match.end() + 1, entries))
    except (tokenize.TokenError, SyntaxError):
        return ()
    return tuple(found)


def without_ignore_comments(text: str) -> str:
    """The text without these comments; every line keeps its number, and other comments of a line stay."""
    comments = ignore_comments(text)
    if not comments:
        return text
    lines = text.split("\n")
    for comment in comments:
        line = lines[comment.line - 1]
        before, after = line[: comment.column - 1].rstrip(), line[comment.end_column - 1 :].strip()
        if after:
            after = after if after.startswith("#") else f"# {after}"
        lines[comment.line - 1] = f"{before}  {after}" if before and after else before or after
    return "\n".join(lines)
