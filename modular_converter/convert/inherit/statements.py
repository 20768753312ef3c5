"""The body of a method as a list of statements, each with its text and its syntax tree."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.findings import character_column
from modular_converter.model import lexer
from modular_converter.model.bindings import Bindings, Effects, bindings_of, covers, targets_of
from modular_converter.model.class_blocks import INDENT, ClassSpan, Member, SourceLines, cut_block, lines_of, taken
from modular_converter.model.index import first_line, is_docstring
from modular_converter.model.nodes import parse, written


BODY_INDENT = 2 * INDENT
"""The indentation of a method's statements."""


@dataclass(frozen=True, eq=False)
class Line:
    """One statement. Statements that semicolons separate are lines of their own."""

    node: ast.stmt
    spans: tuple[ClassSpan, ...]
    """The comments and blank lines above it, and last the statement itself."""
    written: ast.stmt | None = None
    """The statement before the merge removed a part of it."""

    @property
    def text(self) -> str:
        """Its own lines."""
        return self.spans[-1].text

    @property
    def whole(self) -> str:
        """Its own lines and those above."""
        return "".join(span.text for span in self.spans)

    def with_text(self, text: str) -> Line:
        """The same line with another text of its own."""
        return replace(self, spans=(*self.spans[:-1], self.spans[-1]._replace(text=text)))

    @property
    def origin(self) -> ast.stmt:
        """The statement as written, which identifies it."""
        return self.written or self.node

    @cached_property
    def original(self) -> str:
        """`normal` of the statement as it is written."""
        return ast.unparse(self.written) if self.written else self.normal

    @cached_property
    def bindings(self) -> Bindings:
        """What it does with names."""
        return bindings_of(self.node)

    @cached_property
    def effects(self) -> Effects:
        """The paths that it reads and changes."""
        return self.bindings.effects

    @cached_property
    def normal(self) -> str:
        """The statement without comments and white space, for comparisons."""
        return ast.unparse(self.node)

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets of an assignment as text (`a = b = 1` has two); () for any other statement."""
        return targets_of(self.node)

    @cached_property
    def deleted(self) -> tuple[str, ...]:
        """The targets of a `del` statement, as text."""
        return tuple(map(written, self.node.targets)) if isinstance(self.node, ast.Delete) else ()

    def without_targets(self, targets: set[str]) -> Line | None:
        """An assignment or `del` without some of its targets; None when no target is left."""
        all_targets = self.targets or self.deleted
        kept = [position for position, target in enumerate(all_targets) if target not in targets]
        if not kept:
            return None
        if isinstance(self.node, ast.Assign):
            node = ast.Assign([self.node.targets[position] for position in kept], self.node.value)
            parts = _parts_of_assignment(self.text, len(all_targets))
            text = BODY_INDENT + "".join(parts[position] for position in (*kept, -1)).lstrip()
            return replace(self.with_text(text), node=ast.copy_location(node, self.node), written=self.origin)
        rest = line(f"del {', '.join(all_targets[position] for position in kept)}", self.node)
        return replace(rest, written=self.origin)


def _parts_of_assignment(text: str, targets: int) -> list[str]:
    """`a = `, `b = ` and `value` of `a = b = value`."""
    code = lexer.code_only(text)
    depth, ends = 0, [0]
    for place, character in enumerate(code):
        depth += (character in "([{") - (character in ")]}")
        if character == "=" and not depth and len(ends) <= targets:
            ends.append(place + 1 + (text[place + 1] == " "))
    return [text[start:end] for start, end in itertools.pairwise([*ends, len(text)])]


@dataclass(frozen=True)
class Body:
    """A method taken apart."""

    header: ClassSpan
    """Its decorators, and its signature up to the colon."""
    docstring: Line | None
    lines: list[Line]
    footer: ClassSpan
    """The comments behind the last statement."""


def body_of(method: Member) -> Body:
    """Take a method apart. Statements get the usual indentation."""
    lines = [*itertools.repeat("", method.line - 1), *lines_of(method.text)]
    nodes = method.function.body
    first = first_line(nodes[0], lines) - 1
    above = lines[first][: character_column(lines[first], nodes[0].col_offset)]
    if above.strip():  # on the line of the colon
        start = first + 1
        header = "".join(lines[method.line - 1 : first]) + above.rstrip() + "\n"
    elif above != BODY_INDENT:
        return body_of(_with_usual_indentation(method))
    else:
        start = first
        while not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#"):
            start -= 1
        header = "".join(lines[method.line - 1 : start])
    found: list[Line] = []
    end = start
    for node, lead, text, number in cut_block(nodes, lines, start, BODY_INDENT):
        lead_span = taken(lead, method.is_own, number - lead.count("\n"))
        found.append(Line(node, (lead_span, taken(text, method.is_own, number))))
        end = number - 1 + text.count("\n")
    docstring = found.pop(0) if is_docstring(nodes[0]) else None
    footer = taken("".join(lines[end:]), method.is_own, end + 1)
    return Body(taken(header, method.is_own, method.line), docstring, found, footer)


def _with_usual_indentation(method: Member) -> Member:
    from modular_converter.model.indentation import with_standard_indentation

    heading = "class _:\n"
    text = with_standard_indentation(heading + method.text, INDENT)
    (block,) = parse("\n" * (method.line - 2) + text).body
    assert isinstance(block, ast.ClassDef)
    return replace(method, node=block.body[0], text=text.removeprefix(heading))


def line(text: str, near: ast.stmt) -> Line:
    """A new statement; findings about it have the place of `near`, a statement of the child."""
    node = ast.copy_location(parse(text).body[0], near)
    source = SourceLines(True, near.lineno, near.end_lineno or near.lineno)
    return Line(node, (ClassSpan(f"{BODY_INDENT}{text}\n", (source,)),))


def deleted_again(lines: Sequence[Line]) -> Iterator[Line]:
    """The `del` statements of targets that a line above has deleted: they fail with inheritance, too."""
    seen: set[str] = set()
    for part in lines:
        if not seen.isdisjoint(part.deleted):
            yield part
        seen.update(part.deleted)


def only_removes(line: Line) -> bool:
    """Whether this is `self.x = self.x`, which removes the parent's assignment, as in the corpus (qwen3_omni)."""
    if not isinstance(line.node, (ast.Assign, ast.AnnAssign)) or isinstance(line.node.value, (ast.Call, ast.Constant)):
        return False
    return line.node.value is not None and written(line.node.value) in line.targets


def counts_twice(line: Line, instance: str) -> bool:
    """Whether a second execution has an effect of its own: it appends, counts, or calls something for its effect."""
    effects = line.effects
    return (
        bool(effects.changes - {instance})
        or any(covers(path, read) for path in effects.binds for read in effects.reads)
        or any(isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant) for node in ast.walk(line.node))
    )
