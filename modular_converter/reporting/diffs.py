"""Unified diffs between what a file is and what it should be."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator


_COLORS = {"+": "32", "-": "31", "@": "36"}


def unified(path: str, old: str | None, new: str) -> list[str]:
    """The lines of the diff from `old`, None for a file that there is not, to `new`."""
    name = os.path.relpath(path)
    before = "/dev/null" if old is None else f"a/{name}"
    return list(difflib.unified_diff((old or "").splitlines(), new.splitlines(), before, f"b/{name}", lineterm=""))


def colored(lines: Iterable[str], color: bool) -> Iterator[str]:
    """The lines of a diff, in the usual colours where they are wanted."""
    for line in lines:
        code = _COLORS.get(line[:1]) if color else None
        yield f"\x1b[{code}m{line}\x1b[0m" if code else line
