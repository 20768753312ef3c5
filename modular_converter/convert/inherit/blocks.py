"""Classes and functions as a header and a list of statements, each with its own lines of text.

A class is taken apart, its pieces are chosen and rearranged, and it is put together again, all as
text: what is not touched keeps its bytes. `ast` says where each statement begins and ends.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from functools import cached_property

from modular_converter.convert.source.index import end_with_footer, first_line, is_docstring
from modular_converter.convert.source.lexer import code_only, tokens


Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Part:
    """One statement of a block, or several that share a line."""

    lead: str
    """The blank lines and comments above it, whole lines, each with its newline."""
    text: str
    """Its whole lines, decorators and trailing comments included; ends with a newline."""
    nodes: tuple[ast.stmt, ...]
    column: int
    """Indentation, in characters."""
    lines: list[str] = field(default_factory=list, compare=False, repr=False)
    """The lines that the nodes count in, each with its newline; shared by the parts of a class."""
    span: tuple[int, int] = (0, 0)
    """Where its own lines are among `lines`, half-open, from 0."""

    @property
    def node(self) -> ast.stmt:
        """The (first) statement."""
        return self.nodes[0]

    @property
    def is_function(self) -> bool:
        """Whether it is a method."""
        return isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef))

    @property
    def function(self) -> Function:
        """The method that it is."""
        assert isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        return self.node

    def indented(self, column: int) -> Part:
        """The statement at another indentation; the insides of strings stay as they are."""
        shift = column - self.column
        if not shift:
            return self
        inside = _lines_inside_strings(self.text)
        lines = self.text.split("\n")
        for number, line in enumerate(lines):
            if line.strip() and number not in inside:
                lines[number] = " " * shift + line if shift > 0 else line[-shift:]
        return replace(self, text="\n".join(lines), column=column)

    @cached_property
    def normal(self) -> str:
        """The statement without comments and white space, for comparisons."""
        return "\n".join(ast.unparse(node) for node in self.nodes)


@dataclass(frozen=True)
class Block:
    """A class or function: decorators, header and body."""

    decorators: tuple[str, ...]
    """Each decorator's whole lines, with the comments above it."""
    header: str
    """`class X(Y):` or `def f(…):`, whole lines, up to the first line of the body."""
    docstring: Part | None
    parts: tuple[Part, ...]
    node: Definition
    column: int
    lines: list[str] = field(default_factory=list, compare=False, repr=False)
    """The lines that `node` counts in, each with its newline."""
    footer: str = ""
    """Comments behind the last statement that still belong to the block."""

    @property
    def function(self) -> Function:
        """The function that it is."""
        assert isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        return self.node

    def segment(self, node: ast.expr | ast.arg) -> str:
        """The source text of a node of this block."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        rows = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]
        rows[-1] = rows[-1][: node.end_col_offset]
        rows[0] = rows[0][node.col_offset :]
        return b"".join(rows).decode()

    def comma_follows(self, node: ast.expr | ast.arg) -> bool:
        """Whether the next token behind a node of the header is a comma."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        behind = self.lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
        rest = "".join([behind, *self.lines[node.end_lineno : self.node.body[0].lineno]])
        return code_only(rest).lstrip().startswith(",")

    def render(self) -> str:
        """The text of the block."""
        body = [self.docstring] if self.docstring else []
        pieces = [*self.decorators, self.header]
        for part in (*body, *self.parts):
            pieces += (part.lead, part.text)
        if not body and not self.parts:
            pieces.append(" " * (self.column + 4) + "pass\n")
        pieces.append(self.footer)
        return "".join(pieces)


def _lines_inside_strings(text: str) -> set[int]:
    """The lines (from 0) that begin within a string literal."""
    inside: set[int] = set()
    for token in tokens(text):
        if token.kind != "comment":
            first = text.count("\n", 0, token.start)
            inside.update(range(first + 1, first + 1 + text.count("\n", token.start, token.end)))
    return inside


def parse_block(text: str) -> Block:
    """Take a class or function apart; `text` is its whole lines, decorators included, at any indentation."""
    padded = pad(text)
    # Not `splitlines`: form feeds and Unicode separators end no line of Python.
    lines = [line + "\n" for line in padded.removesuffix("\n").split("\n")]
    return _take_apart(parse_padded(padded), lines, int(padded is not text), len(lines))


def method_block(part: Part) -> Block:
    """Take a method of a class apart, with the syntax tree that the class already has."""
    return _take_apart(part.function, part.lines, *part.span)


def pad(text: str) -> str:
    """A definition as a text that can be parsed: an indented one gets a line above it."""
    return f"if 1:\n{text}" if text[:1] in (" ", "\t") else text


def parse_padded(padded: str) -> Definition:
    """The syntax tree of the definition in a padded text; lines count from the padding."""
    node = ast.parse(padded).body[0]
    if isinstance(node, ast.If):
        node = node.body[0]
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    return node


def _take_apart(node: Definition, lines: list[str], start: int, end: int) -> Block:
    """The block of a definition whose own lines are `start` to `end` (half-open, from 0) of `lines`."""
    column = len(lines[node.lineno - 1]) - len(lines[node.lineno - 1].lstrip())
    body_line = first_line(node.body[0])
    before_body = lines[body_line - 1].encode()[: node.body[0].col_offset].decode()
    if before_body.strip() and not getattr(node.body[0], "decorator_list", None):
        rest = lines[body_line - 1][len(before_body) :]
        moved = [*lines[start : body_line - 1], before_body.rstrip() + "\n", " " * (column + 4) + rest]
        return parse_block("".join([*moved, *lines[body_line:end]]))
    starts = [*(decorator.lineno - 1 for decorator in node.decorator_list), node.lineno - 1]
    decorators = tuple(
        "".join(lines[start if index == 0 else line : starts[index + 1]]) for index, line in enumerate(starts[:-1])
    )
    header_end = body_line - 1
    # Comments between the header and the body belong to the body's first statement.
    while not lines[header_end - 1].strip() or lines[header_end - 1].lstrip().startswith("#"):
        header_end -= 1
    parts, footer = split_body(node.body, lines, header_end, end)
    docstring = parts.pop(0) if parts and is_docstring(parts[0].node) else None
    header = "".join(lines[node.lineno - 1 : header_end])
    return Block(decorators, header, docstring, tuple(parts), node, column, lines, footer)


def split_body(nodes: list[ast.stmt], lines: list[str], start: int, end: int) -> tuple[list[Part], str]:
    """Cut the lines `start` to `end` (half-open, from 0) at the statements `nodes`; return also what is left over."""
    parts: list[Part] = []
    previous = start
    index = 0
    while index < len(nodes):
        group = [nodes[index]]
        while index + 1 < len(nodes) and first_line(nodes[index + 1]) == group[-1].end_lineno:
            index += 1
            group.append(nodes[index])
        index += 1
        first = first_line(group[0]) - 1
        limit = first_line(nodes[index]) - 1 if index < len(nodes) else end
        column = len(lines[first]) - len(lines[first].lstrip())
        last = end_with_footer(lines, group[-1].end_lineno or 0, limit, column)
        lead, text = "".join(lines[previous:first]), "".join(lines[first:last])
        parts.append(Part(lead, text, tuple(group), column, lines, (first, last)))
        previous = last
    return parts, "".join(lines[previous:end])
