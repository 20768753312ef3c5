"""Classes and functions as a header and a list of statements, each with its own lines of text.

A class is taken apart, its pieces are chosen and rearranged, and it is put together again, all as
text: what is not touched keeps its bytes. `ast` says where each statement begins and ends.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.source.index import end_with_footer, first_line, is_docstring
from modular_converter.source.lexer import code_only, tokens


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
    source: str
    """The text that `node` was parsed from."""
    footer: str = ""
    """Comments behind the last statement that still belong to the block."""

    @property
    def function(self) -> Function:
        """The function that it is."""
        assert isinstance(self.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        return self.node

    def segment(self, node: ast.AST) -> str:
        """The source text of a node of this block."""
        return ast.get_source_segment(self.source, node) or ast.unparse(node)

    def comma_follows(self, node: ast.expr | ast.arg) -> bool:
        """Whether the next token behind a node is a comma."""
        lines = code_only(self.source).split("\n")
        assert node.end_lineno is not None and node.end_col_offset is not None
        raw = self.source.split("\n")[node.end_lineno - 1]
        rest = lines[node.end_lineno - 1][len(raw.encode()[: node.end_col_offset].decode()) :]
        following = "\n".join([rest, *lines[node.end_lineno :]])
        return following.lstrip().startswith(",")

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
    node = parse_definition(text)
    # Not `splitlines`: form feeds and Unicode separators end no line of Python.
    lines = [line + "\n" for line in text.removesuffix("\n").split("\n")]
    decorator_lines = [decorator.lineno for decorator in node.decorator_list]
    definition = node.lineno
    starts = [*decorator_lines, definition]
    decorators = tuple(
        "".join(lines[(0 if index == 0 else start - 1) : starts[index + 1] - 1])
        for index, start in enumerate(decorator_lines)
    )
    column = len(lines[definition - 1]) - len(lines[definition - 1].lstrip())
    header_end, lines = _header_end(lines, node, column)
    header = "".join(lines[definition - 1 : header_end])
    parts, footer = split_body(node.body, lines, header_end)
    docstring = None
    if parts and is_docstring(parts[0].node):
        docstring, parts = parts[0], parts[1:]
    return Block(decorators, header, docstring, tuple(parts), node, column, text, footer)


def parse_definition(text: str) -> Definition:
    """The syntax tree of one definition that may be indented; line 1 is the first line of `text`."""
    indented = text[:1] in (" ", "\t")
    tree = ast.parse("if 1:\n" + text if indented else text)
    if indented:
        ast.increment_lineno(tree, -1)
        wrapper = tree.body[0]
        assert isinstance(wrapper, ast.If)
        node = wrapper.body[0]
    else:
        node = tree.body[0]
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    return node


def _header_end(lines: list[str], node: Definition, column: int) -> tuple[int, list[str]]:
    """The number of lines up to the body; a body on the header's line is moved to a line of its own."""
    first = node.body[0]
    body_line = first_line(first)
    line = lines[body_line - 1]
    start = len(line.encode()[: first.col_offset].decode())
    if not line[:start].strip():
        # The colon stands on some line above; comments between belong to the first statement.
        end = body_line - 1
        while end > 1 and (not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#")):
            end -= 1
        return end, lines
    indent = " " * (column + 4)
    moved = [*lines[: body_line - 1], line[:start].rstrip() + "\n", indent + line[start:], *lines[body_line:]]
    for statement in node.body:
        ast.increment_lineno(statement, 1)
    return body_line, moved


def split_body(nodes: list[ast.stmt], lines: list[str], start: int) -> tuple[list[Part], str]:
    """Cut the lines from `start` (from 0) on at the statements `nodes`; return also what is left behind the last."""
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
        limit = first_line(nodes[index]) - 1 if index < len(nodes) else len(lines)
        column = len(lines[first]) - len(lines[first].lstrip())
        last = end_with_footer(lines, group[-1].end_lineno or 0, limit, column)
        parts.append(Part("".join(lines[previous:first]), "".join(lines[first:last]), tuple(group), column))
        previous = last
    return parts, "".join(lines[previous:])
