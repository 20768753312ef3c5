"""Findings about files: rules, places, and findings that carry both; and the result of a conversion that has them.

Everything here is a frozen, picklable value of the standard library, so that workers can hand it back and every
other module may import this one.
"""

from __future__ import annotations

import bisect
import enum
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec


if TYPE_CHECKING:
    import ast


SIMILAR = 0.8
"""The similarity of a word to a known name, 1 for the same, from which it is taken for misspelt although not all names
are known: `scael` has 0.8 to `scale`, `hidden_size` 0.67 to `hidden_act`.
"""
MOST_CANDIDATES = 1000
"""The number of names that a misspelt name is compared with. A comparison takes microseconds, but a file may misspell
thousands of names.
"""


class Severity(enum.Enum):
    """An error stops the file that it is about; a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Rule(NamedTuple):
    """A mistake that an author can make. What its page says is a text of its own: `rules.page_text`."""

    code: str
    """Stable, such as `MC101`."""
    name: str
    """A slug in kebab case; the functions of the rule have it as an identifier."""
    summary: str
    """One line, without a full stop."""
    is_first: bool = False
    """Whether it is about a whole run, so that reports begin with it."""
    by_default: bool = True
    """Whether it is reported by default; else only when its code is selected."""
    unsafe_fix: bool = False
    """Whether its fix changes the generated files, since the finding says that they are not as the author means them."""
    formerly: str | None = None
    """The code of the rule that it was a part of, which still means it in settings and comments."""
    became_error: bool = False
    """Whether it is an error with the code of a warning, which it once was: codes stay."""

    @property
    def severity(self) -> Severity:
        """What the hundred of its code says: `MC3…` and `MC6…` are warnings."""
        is_warning = self.code.startswith(("MC3", "MC6")) and not self.became_error
        return Severity.WARNING if is_warning else Severity.ERROR

    @property
    def fix_applicability(self) -> str:
        """`safe` or `unsafe`, for a rule with a fix."""
        return "unsafe" if self.unsafe_fix else "safe"

    def finding(self, location: Location, /, message: str, help: str = "", **further: Any) -> Finding:
        """A case of the rule, with the further fields of a finding by name."""
        return Finding(self, location, message, help, **further)

    @property
    def can_be_ignored(self) -> bool:
        """Whether an author may silence it. An error means a wrong result, however a setting weighs it."""
        return self.severity is Severity.WARNING

    def is_meant_by(self, prefix: str) -> bool:
        """Whether its code, or its former code, begins like this."""
        return self.code.startswith(prefix) or (self.formerly is not None and self.formerly.startswith(prefix))


@dataclass(frozen=True)
class Location:
    """A place in a file. Lines and columns are counted in characters from 1; the end column is exclusive."""

    path: str
    line: int = 1
    column: int = 1
    end_line: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"


class Edit(NamedTuple):
    """A text that replaces the text between two places. Lines and columns count from 1, and the end is exclusive."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


class Fix(NamedTuple):
    """The fix of a finding: edits of its file."""

    title: str
    """What it does, in the imperative: "Remove the comment"."""
    edits: tuple[Edit, ...]


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with some edits, which do not overlap."""
    starts = [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n"))]
    for edit in sorted(edits, reverse=True):
        start, end = starts[edit.line - 1] + edit.column - 1, starts[edit.end_line - 1] + edit.end_column - 1
        text = text[:start] + edit.text + text[end:]
    return text


@dataclass(frozen=True)
class Finding:
    """One finding: the broken rule, the place, the mistake in this case, and the text to write instead."""

    rule: Rule
    location: Location
    message: str
    help: str = ""
    source_line: str = ""
    """The text of the line at `location`, without its line break."""
    severity_override: Severity | None = None
    """The severity that a setting or an option gives the rule in place of its own."""
    fix: Fix | None = field(default=None, compare=False)
    """The fix, if it is plain; `modular-convert --fix` applies it if the generated files stay the same."""
    related: tuple[Location, ...] = ()
    """Other places that the finding is about in the same way."""
    details: str = field(default="", compare=False)
    """A longer text that `modular-convert --verbose` prints behind the findings: the traceback of MC199."""

    @property
    def code(self) -> str:
        return self.rule.code

    @property
    def applicability(self) -> str:
        """`safe` for a fix that leaves the generated files byte for byte, `unsafe` for any other; "" where none is plain."""
        return self.rule.fix_applicability if self.fix else ""

    @property
    def severity(self) -> Severity:
        """The severity in this case: the rule's own, unless overridden."""
        return self.severity_override or self.rule.severity

    @property
    def is_error(self) -> bool:
        """Whether its file is not written."""
        return self.severity is Severity.ERROR

    @property
    def sort_key(self) -> tuple[bool, str, int, int, str, str]:
        """The key that orders reports: first what is about the whole run, then by path, line, column and code."""
        return (
            not self.rule.is_first,
            self.location.path,
            self.location.line,
            self.location.column,
            self.code,
            self.message,
        )

    def with_severity(self, severity: Severity) -> Finding:
        """The same finding with another severity (`--strict` makes errors of warnings)."""
        return replace(self, severity_override=severity)

    def with_source(self, source: str) -> Finding:
        """The same finding with its line of `source`, the text of its file."""
        lines = split_lines(source)
        line = self.location.line
        return replace(self, source_line=lines[line - 1]) if 0 < line <= len(lines) else self

    def __str__(self) -> str:
        return f"{self.location}: {self.severity.value} {self.code} {self.message}"


Given = ParamSpec("Given")


@dataclass(frozen=True)
class ClassFinding:
    """A finding about a class of the modular file, whose place in the file is not known yet."""

    node: ast.AST
    """The place: a node of the class's syntax tree, whose lines count from the class."""
    finding: Finding
    """With no place."""


def finding_at(
    node: ast.AST, diagnose: Callable[Concatenate[Location, Given], Finding], *given: Given.args, **named: Given.kwargs
) -> ClassFinding:
    """The finding that a rule's function words, with its arguments except the place."""
    return ClassFinding(node, diagnose(Location(""), *given, **named))


class ConversionError(Exception):
    """Raised by a step that cannot continue with a file; its findings give the reasons."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__(*findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, at least one."""
        return self.args

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self.findings)


def exit_code(findings: Iterable[Finding], *, incomplete: bool = False, different: bool = False) -> int:
    """The exit code of a command: 2 when something could not be done, 1 with findings or differences, else 0.

    Errors `MC1…` mean that something could not be done. Warnings do not count.
    """
    errors = [finding for finding in findings if finding.is_error]
    if incomplete or any(error.code.startswith("MC1") for error in errors):
        return 2
    return 1 if errors or different else 0


@functools.lru_cache(maxsize=4)
def split_lines(source: str) -> tuple[str, ...]:
    """The lines of a source as Python counts them: a form feed or a Unicode line separator ends none. The last results
    are kept: a file may have thousands of findings.
    """
    return tuple(source.replace("\r\n", "\n").replace("\r", "\n").split("\n"))


def locate(path: str, node: ast.AST, source: str, above: int = 0) -> Location:
    """The place of a syntax node of `source`, `above` which the file has some lines. The parser counts columns in UTF-8
    bytes from 0.
    """
    line, end_line = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
    column, end_column = getattr(node, "col_offset", 0), getattr(node, "end_col_offset", None)
    lines = split_lines(source)
    start = character_column(lines[line - 1], column) + 1
    if end_line is None or end_column is None:
        return Location(path, line + above, start)
    end = character_column(lines[end_line - 1], end_column) + 1
    return Location(path, line + above, start, end_line + above, end)


def edit_of(node: ast.AST, source: str, new: str) -> Edit:
    """The edit that writes another text for a syntax node of `source`."""
    at = locate("", node, source)
    return Edit(at.line, at.column, at.end_line or at.line, at.end_column or at.column, new)


def character_column(line: str, column: int) -> int:
    """A column in characters, from a column of the parser in UTF-8 bytes; both count from 0."""
    return column if line.isascii() else len(line.encode("utf-8")[:column].decode("utf-8"))


UNPARSABLE = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The exceptions of `ast.parse` for a text that is not Python, or is nested too deeply."""


def locate_parse_error(path: str, error: Exception) -> tuple[Location, str]:
    """The place and the reason of an exception of `UNPARSABLE`; only a `SyntaxError` has a place of its own."""
    line, column = getattr(error, "lineno", 1) or 1, getattr(error, "offset", 1) or 1
    return Location(path, line, column), getattr(error, "msg", "") or str(error) or type(error).__name__


def locate_word(path: str, word: str, source: str, line: int = 1) -> Location:
    """The first place at or below `line` where `word` stands alone: in code, else in a string or comment; the start of
    `line` when there is none.
    """
    if _WORD.fullmatch(word):
        for found in _word_places(source):
            places = found.get(word, ())
            following = bisect.bisect_left(places, (line, 0))
            if following < len(places):
                line, start = places[following]
                return Location(path, line, start + 1, line, start + len(word) + 1)
        return Location(path, line)
    pattern = re.compile(rf"(?<![\w.]){re.escape(word)}(?!\w)")
    for number, text in enumerate(split_lines(source)[line - 1 :], start=line):
        if match := pattern.search(text):
            return Location(path, number, match.start() + 1, number, match.end() + 1)
    return Location(path, line)


_WORD = re.compile(r"(?<![\w.])\w+")
# A string, to its end or to the end of its line, or a comment.
_TEXT = re.compile(
    r"""("{3}|'{3})(?:[^\\]|\\.)*?(?:\1|\Z)|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|\#[^\n]*""", re.DOTALL
)


@functools.lru_cache(maxsize=4)
def _word_places(source: str) -> tuple[dict[str, list[tuple[int, int]]], ...]:
    """Word -> line, from 1, and column, from 0, of each place where it stands alone, in their order: in code, and in all."""
    text = "\n".join(split_lines(source))
    return _places_in(_TEXT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)), _places_in(text)


def _places_in(text: str) -> dict[str, list[tuple[int, int]]]:
    places: dict[str, list[tuple[int, int]]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        for match in _WORD.finditer(line):
            places.setdefault(match[0], []).append((number, match.start()))
    return places


def first_of(names: Sequence[str], most: int) -> str:
    """The first names, and the number of those that are left out: `a, b, c and 2 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def nearest(word: str, candidates: Iterable[str], similarity: float = 0.6) -> str | None:
    """The candidate that is most similar to `word`; one that differs in case alone comes first. None when no candidate
    is close, or there are too many to compare.
    """
    import difflib  # most runs misspell nothing

    known = set(candidates)
    found = sorted(name for name in known if name.lower() == word.lower() and name != word)
    if not found and len(known) <= MOST_CANDIDATES:
        found = difflib.get_close_matches(word, sorted(known), n=1, cutoff=similarity)
    return found[0] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """`Did you mean …? ` when a candidate is close to `word`, else "". A help text follows. A word that is a candidate
    itself is not misspelt.
    """
    known = set(candidates)
    found = None if word in known else nearest(word, known)
    return f"Did you mean `{found}`? " if found else ""


EXISTS, UNREADABLE, MISSING = "exists", "unreadable", ""
"""In place of a file's hash: the file was only asked for and is there; it could not be read; it is not there."""


class Origin(NamedTuple):
    """Where a generated definition comes from: `path:line name`, and how it was made."""

    path: str
    line: int
    name: str
    how: str
    """`written`, `merged` (a child laid over its parent) or `copied`."""


@dataclass(frozen=True)
class Conversion:
    """The result of converting one modular file."""

    path: str
    files: Mapping[str, str]
    """Absolute path of each generated file -> its text. Empty when there are errors."""
    findings: tuple[Finding, ...] = ()
    """The findings, without those that the author silences."""
    origins: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict)
    """Path of each generated file -> where each of its definitions comes from, in order."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Every file that the result depends on, sorted -> the SHA-256 hash of its content, or one of the words above."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Every package that was looked for by name -> its folder, "" for a package that was not found."""
    requires: frozenset[str] = frozenset()
    """The neighbour files that the modular file imports from, whether they exist or not."""

    found: tuple[Finding, ...] = ()
    """The findings before the settings leave some out or change their severity."""

    @property
    def failed(self) -> bool:
        """Whether an error stopped it."""
        return any(finding.is_error for finding in self.findings)

    def strictly(self) -> Conversion:
        """The same with warnings as errors, which leave no files."""
        if not self.findings:
            return self
        findings = tuple(one.with_severity(Severity.ERROR) for one in self.findings)
        return replace(self, files={}, findings=findings)
