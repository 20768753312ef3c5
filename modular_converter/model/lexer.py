"""A lexical view of Python text: where its comments, strings and f-string texts are.

Renaming and listing identifiers need no full tokenizer. The first character of a comment or string tells where it
ends; only f-strings, which nest, are walked by hand.
"""

from __future__ import annotations

import bisect
import functools
import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple


_LINE_END = re.compile("\n")
_MARK = re.compile(r"[#\"']")
_STRING_END = {  # runs of ordinary characters are taken at once, in half of the time of one by one
    '"""': re.compile(r'[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""', re.DOTALL),
    "'''": re.compile(r"[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''", re.DOTALL),
    '"': re.compile(r'[^"\\\n]*(?:\\.[^"\\\n]*)*"', re.DOTALL),
    "'": re.compile(r"[^'\\\n]*(?:\\.[^'\\\n]*)*'", re.DOTALL),
}
_PREFIX = re.compile(r"(?<![^\W_])(?<!_)[rRbBuUfFtT]{1,2}\Z")
_TEMPLATE_OPENINGS = [
    f"{letters}{quote}"
    for letters in ["f", "F", "t", "T", "fr", "Fr", "fR", "FR", "tr", "Tr", "tR", "TR"]
    for quote in "\"'"
]
_IDENTIFIER = re.compile(r"\b[^\W\d]\w*")
_ASCII_IDENTIFIER = re.compile(r"\b[A-Za-z_]\w*", re.ASCII)  # in two fifths of the time
QUOTED_WORD = re.compile(r"""["'](\w+)["']""")
"""A string that is one word, such as the name of an attribute."""

Span = tuple[int, int]


class Token(NamedTuple):
    """A comment, a plain string literal or a whole f-string: half-open offsets, the prefix included."""

    kind: str
    start: int
    end: int
    texts: tuple[Span, ...] = ()
    """For an f-string: the spans of its literal texts, nested f-strings included."""
    others: tuple[Span, ...] = ()
    """For an f-string: the spans of its quotes, conversions, comments and plain strings, which are not code either."""


def has_template(text: str) -> bool:
    """Whether `text` may hold an f-string. False is certain, true is not."""
    return any(opening in text for opening in _TEMPLATE_OPENINGS)


def tokens(text: str) -> Iterator[Token]:
    """The comments and strings of `text`, in order."""
    position = 0
    while mark := _MARK.search(text, position):
        token = _token_at(text, mark.start())
        yield token
        position = token.end


def placed_tokens(text: str) -> Iterator[tuple[Token, int, int]]:
    """The comments and strings of `text`, in order, each with the line and the column that it begins at, from 0."""
    starts = [0, *(one.end() for one in _LINE_END.finditer(text))]
    for token in tokens(text):
        line = bisect.bisect_right(starts, token.start) - 1
        yield token, line, token.start - starts[line]


def lines_within_strings(text: str) -> set[int]:
    """The lines of `text`, from 0, that end inside of a string."""
    if '"""' not in text and "'''" not in text and "\\\n" not in text:  # most definitions
        return set()
    strings = ((one, line) for one, line, _ in placed_tokens(text) if one.kind != "comment")
    return {line + more for one, line in strings for more in range(text.count("\n", one.start, one.end))}


def template_text_spans(text: str) -> list[Span]:
    """Offsets of the literal text of every f-string in `text`, nested ones included."""
    return sorted(span for token in tokens(text) for span in token.texts)


def code_only(text: str) -> str:
    """`text` with comments, strings and the literal text of f-strings blanked out; all offsets are kept."""
    pieces: list[str] = []
    position = 0
    for token in tokens(text):
        spans = sorted(token.texts + token.others) if token.kind == "template" else [(token.start, token.end)]
        for start, end in spans:
            pieces += (text[position:start], " " * (end - start))
            position = end
    pieces.append(text[position:])
    return "".join(pieces)


def classes_in_strings(text: str) -> list[str]:
    """The class names that occur as strings in a text, in order."""
    return [word for word in QUOTED_WORD.findall(text) if word[0].isupper()]


def replace_spans(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """`text` with other texts in some spans, which are given in order and do not overlap."""
    pieces: list[str] = []
    position = 0
    for start, end, replacement in edits:
        pieces += (text[position:start], replacement)
        position = end
    return "".join((*pieces, text[position:]))


@functools.lru_cache(maxsize=1024)  # most definitions of a file are those of its last version
def identifiers(text: str) -> frozenset[str]:
    """Every identifier (keywords too) in the code of `text`, attribute and argument names included."""
    # Interned, since the same few thousand names occur in all models: that saves 30 MB over the corpus.
    pattern = _ASCII_IDENTIFIER if text.isascii() else _IDENTIFIER
    return frozenset(map(sys.intern, pattern.findall(code_only(text))))


def _token_at(text: str, mark: int) -> Token:
    """The token whose `#` or opening quote stands at `mark`."""
    if text[mark] == "#":
        line_end = _LINE_END.search(text, mark)
        return Token("comment", mark, line_end.start() if line_end else len(text))
    prefix = _PREFIX.search(text, max(0, mark - 3), mark)
    start = prefix.start() if prefix else mark
    quote = text[mark : mark + 3] if text[mark : mark + 3] in _STRING_END else text[mark]
    body = mark + len(quote)
    letters = text[start:mark].lower()
    if "f" in letters or "t" in letters:
        walk = _TemplateWalk(text, quote, "r" in letters)
        end = walk.template(body)
        return Token("template", start, end, tuple(walk.texts), ((start, body), *walk.others))
    match = _STRING_END[quote].match(text, body)
    return Token("string", start, match.end() if match else len(text))


class _TemplateWalk:
    """One pass over an f-string, by hand: fields nest, and hold code, strings and format texts of their own."""

    def __init__(self, text: str, quote: str, raw: bool) -> None:
        self.text, self.quote, self.raw = text, quote, raw
        self.texts: list[Span] = []
        self.others: list[Span] = []

    def template(self, position: int) -> int:
        """Walk from the first character of the content; return the offset behind the closing quote."""
        text, literal = self.text, position
        while position < len(text):
            char = text[position]
            if text.startswith(self.quote, position):
                self.texts.append((literal, position))
                end = position + len(self.quote)
                self.others.append((position, end))
                return end
            if char == "\\":
                # `\N{NAME}` is the one escape with braces of its own; any other backslash escapes no brace.
                named = not self.raw and text.startswith("\\N{", position)
                escapes = 1 if text.startswith("{", position + 1) else 2
                position = text.find("}", position) + 1 if named else position + escapes
            elif char == "{" and text.startswith("{{", position):
                position += 2
            elif char == "{":
                self.texts.append((literal, position))
                position = literal = self.field(position + 1)
            else:
                position += 1
        return len(text)

    def field(self, position: int) -> int:
        """Walk one replacement field, of which `{` has been read; return the offset behind its `}`."""
        text, depth = self.text, 0
        while position < len(text):
            char = text[position]
            if char in "#\"'":
                if char != "#" and text.startswith(self.quote, position) and not self._opens_string(position):
                    return position  # the f-string ends inside a field: not Python, and ast says so
                token = _token_at(self.text, position)
                self.texts += token.texts
                self.others += token.others if token.kind == "template" else [(token.start, token.end)]
                position = token.end
            elif char in "([{":
                depth, position = depth + 1, position + 1
            elif char in ")]" or (char == "}" and depth):
                depth, position = depth - 1, position + 1
            elif char == "}":
                return position + 1
            elif char == "!" and not depth and not text.startswith("!=", position):
                self.others.append((position, position + 2))
                position += 2
            elif char == ":" and not depth:
                return self.format_spec(position + 1)
            else:
                position += 1
        return len(text)

    def format_spec(self, position: int) -> int:
        """Walk a format specification, literal text that may hold fields, up to and over the closing `}`."""
        text, literal = self.text, position
        while position < len(text):
            if text[position] == "{":
                self.texts.append((literal, position))
                position = literal = self.field(position + 1)
            elif text[position] == "}":
                self.texts.append((literal, position))
                return position + 1
            else:
                position += 1
        return position

    def _opens_string(self, position: int) -> bool:
        """Whether the outer quote inside a field opens a string (Python 3.12), so that the quote occurs again later."""
        match = _STRING_END[self.quote].match(self.text, position + len(self.quote))
        return match is not None and self.text.find("}", match.end()) >= 0
