"""The body of a method as a list of statements, each as a node of libcst, which keeps the text, and of `ast`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import libcst as cst

from modular_converter.model.bindings import Bindings, Effects, Function, bindings_of, covers, targets_of
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import parse, written


@dataclass(frozen=True, eq=False)
class Line:
    """One statement. Statements that semicolons separate are lines of their own."""

    tree: cst.BaseStatement
    node: ast.stmt
    written: ast.stmt | None = None
    """The statement before the merge removed a part of it."""

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
        assert isinstance(self.tree, cst.SimpleStatementLine)
        small, all_targets = self.tree.body[0], self.targets or self.deleted
        kept = [position for position, target in enumerate(all_targets) if target not in targets]
        if not kept:
            return None
        if isinstance(small, cst.Assign) and isinstance(self.node, ast.Assign):
            node = ast.Assign([self.node.targets[position] for position in kept], self.node.value)
            small = small.with_changes(targets=[small.targets[position] for position in kept])
            return Line(self.tree.with_changes(body=[small]), ast.copy_location(node, self.node), self.origin)
        rest = line(f"del {', '.join(all_targets[position] for position in kept)}", self.node)
        return replace(rest, written=self.origin)


@dataclass(frozen=True)
class Body:
    """The body of a method."""

    docstring: Line | None
    lines: list[Line]
    footer: tuple[cst.EmptyLine, ...]
    """Comments behind the last statement."""


def body_of(function: cst.FunctionDef, node: Function, statements: Sequence[str]) -> Body:
    """Take the body of a method apart.

    Args:
        function: the tree of the shortened method.
        node: the tree of the whole method.
        statements: see `Shortened.statements`.
    """
    body = function.body
    trees: list[cst.BaseStatement] = []
    footer: tuple[cst.EmptyLine, ...] = ()
    if isinstance(body, cst.IndentedBlock):
        footer = tuple(body.footer)
        for tree in body.body:
            trees += _parted(tree) if isinstance(tree, cst.SimpleStatementLine) else [tree]
    elif isinstance(body, cst.SimpleStatementSuite):
        whole = cst.SimpleStatementLine(body.body, trailing_whitespace=body.trailing_whitespace)
        trees += _parted(whole)
    trees = [_whole(tree, text) if text else tree for tree, text in zip(trees, statements, strict=True)]
    lines = [Line(tree, statement) for tree, statement in zip(trees, node.body, strict=True)]
    docstring = lines.pop(0) if lines and is_docstring(lines[0].node) else None
    return Body(docstring, lines, footer)


def _parted(tree: cst.SimpleStatementLine) -> Iterator[cst.SimpleStatementLine]:
    """The statements of one line, each as a line. Comments above go to the first, a comment behind to the last."""
    last = len(tree.body) - 1
    for position, small in enumerate(tree.body):
        yield cst.SimpleStatementLine(
            body=[small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)],
            leading_lines=tree.leading_lines if not position else (),
            trailing_whitespace=tree.trailing_whitespace if position == last else cst.TrailingWhitespace(),
        )


class _Verbatim(cst.Name):
    """A statement that is printed as it is. libcst prints the text of a name so, but checks that it is a name."""

    def _validate(self) -> None:
        pass

    def visit(self, visitor: cst.CSTVisitorT) -> _Verbatim:
        return self


def _whole(tree: cst.BaseStatement, text: str) -> cst.BaseStatement:
    """The line of a placeholder with its statement."""
    return tree.with_changes(body=[cst.Expr(_Verbatim(text))])


def line(text: str, near: ast.AST) -> Line:
    """A new statement; findings about it have the place of `near`."""
    node = parse(text).body[0]
    return Line(cst.SimpleStatementLine([cst.Expr(_Verbatim(text))]), ast.copy_location(node, near))


def with_body(
    function: cst.FunctionDef, docstring: Line | None, lines: list[Line], footer: Sequence[cst.EmptyLine]
) -> cst.FunctionDef:
    """The method with another body."""
    statements = [part.tree for part in ([docstring] if docstring else []) + lines] or [
        cst.SimpleStatementLine([cst.Pass()])
    ]
    old = function.body
    if isinstance(old, cst.IndentedBlock):
        return function.with_changes(body=old.with_changes(body=statements, footer=footer))
    return function.with_changes(body=cst.IndentedBlock(statements, footer=footer))


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


Overrides = dict[str, tuple[Line, str]]
"""The assignments behind the `super()` calls of a class so far: target -> the assignment and the method that it stands in.
They count for its later methods too, as in the corpus (vivit): see docs/architecture.md.
"""
