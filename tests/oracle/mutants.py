"""Mutants of published modular files: small damage of many kinds, as typing, merging and broken disks leave it."""

from __future__ import annotations

import ast
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import FrameType

from modular_converter.convert.batch import Run
from modular_converter.findings import Conversion
from modular_converter.settings.values import Settings


SECONDS = 60
"""Time for one conversion on a busy machine; none takes more than a second on an idle one."""
SIGNS = "()[]{}:,.=*@\"'#\\\n\t \x0c\u2028é0x_\x00"
WORDS = (
    "super()",
    "self",
    "del",
    "return",
    "async ",
    "await ",
    "yield",
    "lambda: ",
    "*",
    "**super_kwargs",
    "pass",
    "1",
)


class Hang(Exception):
    """Raised when a conversion takes too long."""


def mutate(text: str, draw: Random) -> str:
    """A text with one to three changes."""
    changes = (_statement_goes, _statement_moves, _name_changes, _line_goes, _line_twice, _word_comes, _sign_changes)
    for _ in range(draw.randint(1, 3)):
        text = draw.choice((*changes, _indentation_changes))(text, draw)
    return text


def _statements(text: str) -> list[tuple[int, int]]:
    """The line spans (half-open, from 0) of all statements; the first line where the text is no longer Python."""
    nodes = [node for node in _nodes(text) if isinstance(node, ast.stmt)]
    return [(node.lineno - 1, node.end_lineno or node.lineno) for node in nodes] or [(0, 1)]


def _nodes(text: str) -> list[ast.AST]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return []


def _statement_goes(text: str, draw: Random) -> str:
    lines = text.split("\n")
    start, end = draw.choice(_statements(text))
    return "\n".join([*lines[:start], _indentation(lines[start]) + "pass", *lines[end:]])


def _statement_moves(text: str, draw: Random) -> str:
    """A statement copied to the place of another, at that one's indentation."""
    lines, spans = text.split("\n"), _statements(text)
    (start, end), (place, _) = draw.choice(spans), draw.choice(spans)
    shift = len(_indentation(lines[place])) - len(_indentation(lines[start]))
    moved = [" " * shift + line if shift > 0 else line[-shift:] for line in lines[start:end]]
    return "\n".join([*lines[:place], *moved, *lines[place:]])


def _name_changes(text: str, draw: Random) -> str:
    """A name in the place of another of the file."""
    names = [node for node in _nodes(text) if isinstance(node, ast.Name)]
    if not names:
        return text
    node, other = draw.choice(names), draw.choice(names)
    lines = text.split("\n")
    line = lines[node.lineno - 1].encode()
    lines[node.lineno - 1] = (line[: node.col_offset] + other.id.encode() + line[node.end_col_offset :]).decode()
    return "\n".join(lines)


def _line_goes(text: str, draw: Random) -> str:
    lines = text.split("\n")
    del lines[draw.randrange(len(lines))]
    return "\n".join(lines)


def _line_twice(text: str, draw: Random) -> str:
    lines = text.split("\n")
    place = draw.randrange(len(lines))
    return "\n".join([*lines[:place], lines[place], *lines[place:]])


def _word_comes(text: str, draw: Random) -> str:
    """A word before a statement or an expression, where it may be Python still."""
    lines = text.split("\n")
    start, _ = draw.choice(_statements(text))
    lines[start] = _indentation(lines[start]) + draw.choice(WORDS) + lines[start].lstrip()
    return "\n".join(lines)


def _sign_changes(text: str, draw: Random) -> str:
    place = draw.randrange(len(text) + 1)
    return text[:place] + draw.choice(SIGNS) + text[place + draw.randint(0, 1) :]


def _indentation_changes(text: str, draw: Random) -> str:
    lines = text.split("\n")
    place = draw.randrange(len(lines))
    lines[place] = draw.choice((" ", "  ", "    ", "\t")) + lines[place]
    return "\n".join(lines)


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    """Raise `Hang` in the main thread after this time."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def complaint(path: str, text: str, settings: Settings, twice: bool) -> tuple[str, str]:
    """What is wrong with the conversion of a mutant, "" for nothing; and whether it was converted or refused.

    Args:
        twice: whether to convert it again, for the same result.
    """
    began = time.monotonic()
    try:
        with _limited(SECONDS):
            results = [Run(settings, {path: text}, workers=1).convert([path])[0] for _ in range(1 + twice)]
    except Hang:
        return f"no result after {time.monotonic() - began:.0f} s", "hangs"
    except Exception as error:
        return f"raises {type(error).__name__}: {error}", "crashes"
    first = results[0]
    outcome = "refused" if first.failed else "converted"
    if any((first.files, first.findings) != (again.files, again.findings) for again in results[1:]):
        return "gives another result the second time", outcome
    crashes = [finding.message for finding in first.findings if finding.rule.name == "internal-error"]
    return (crashes or [*_invalid(first)] or [""])[0], outcome


def _invalid(conversion: Conversion) -> Iterator[str]:
    """Why generated texts do not compile: that should have been an error of the conversion."""
    for text in conversion.files.values():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(text, "<generated>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            yield f"does not compile: {error}"
