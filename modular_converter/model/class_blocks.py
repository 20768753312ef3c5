"""A class as a list of members: `ClassBlock`, each with its own lines of text and the names that it binds; `Members`, the same
class as rules ask about it.

`ast` says where each statement begins and ends, so that members which nobody touches keep their bytes.
"""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from modular_converter.findings import character_column
from modular_converter.model.bindings import FUNCTIONS, Bindings, Function, bindings_in, bindings_of, instance_of
from modular_converter.model.index import end_with_footer, first_line, is_docstring
from modular_converter.model.nodes import (
    decorated_by,
    dotted,
    is_super_statement,
    parse,
    statement_value,
    super_method,
    targets_of,
    walk,
    written,
)


INDENT = "    "


class SourceLines(NamedTuple):
    """Lines of a class of the modular file, or of its renamed parent, both counted from 1 within the class."""

    is_own: bool
    """Whether they are the heir's."""
    first: int
    last: int


class ClassSpan(NamedTuple):
    """Whole lines of a generated class; the spans of a class in order are its text."""

    text: str
    sources: tuple[SourceLines, ...] = ()
    """The lines that it was made from, the most important first; none for lines that the merge adds."""


def taken(text: str, is_own: bool, line: int) -> ClassSpan:
    """Lines that stay as they are; `line` is the first of them in their class."""
    return ClassSpan(text, (SourceLines(is_own, line, line + text.count("\n") - 1),))


@dataclass(frozen=True, eq=False)
class Member:
    """One statement of a class body."""

    node: ast.stmt
    lead: str
    """The blank lines and comments above it, whole lines, each with its newline."""
    text: str
    """Its whole lines, decorators and trailing comments included; ends with a newline."""
    line: int = 1
    """The line of the class that its text begins with, from 1."""
    documentation: str = ""
    """The strings directly below an attribute, whole lines with the comments above them."""
    inherited_reads: frozenset[str] = frozenset()
    """For an override: the names that its lines from the parent read."""
    is_own: bool = True
    """Whether it stands in the class of the modular file, not in the parent."""
    merged: tuple[ClassSpan, ...] = ()
    """For a member that the merge has made or completed: all its spans."""

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, FUNCTIONS)

    @property
    def function(self) -> Function:
        assert isinstance(self.node, FUNCTIONS)
        return self.node

    @property
    def is_attribute(self) -> bool:
        """Whether it is an assignment."""
        return isinstance(self.node, (ast.Assign, ast.AnnAssign))

    @property
    def may_be_skipped(self) -> bool:
        """Whether its names are bound only on a condition: below `if`, `for`, `while`, `try` or `match`."""
        certain = (*FUNCTIONS, ast.ClassDef, ast.With)
        return isinstance(self.node, ast.Match) or (hasattr(self.node, "body") and not isinstance(self.node, certain))

    @cached_property
    def bindings(self) -> Bindings:
        return bindings_of(self.node)

    @property
    def reads(self) -> frozenset[str]:
        """The names that it reads while the body of the class is executed."""
        return self.bindings.reads | self.inherited_reads

    @property
    def binds(self) -> frozenset[str]:
        return frozenset((self.function.name,)) if self.is_function else self.bindings.local

    @property
    def touches(self) -> frozenset[str]:
        """The names that it binds, and those whose objects it may change."""
        return self.binds | self.bindings.reads if self.bindings.may_change_objects else self.binds

    @property
    def carries_nothing(self) -> bool:
        """Whether it has no effect: `pass`, `...`, a constant, a name, an annotation of nothing."""
        value = self.node.value if isinstance(self.node, ast.Expr) else None
        return isinstance(self.node, ast.Pass) or isinstance(value, (ast.Constant, ast.Name, ast.Attribute))

    @property
    def spans(self) -> tuple[ClassSpan, ...]:
        """Its lead, its text and its documentation."""
        return self.merged or (self.lead_span, self.text_span, self.documentation_span)

    @property
    def lead_span(self) -> ClassSpan:
        """The lines above it."""
        return taken(self.lead, self.is_own, self.line - self.lead.count("\n"))

    @property
    def text_span(self) -> ClassSpan:
        return taken(self.text, self.is_own, self.line)

    @property
    def documentation_span(self) -> ClassSpan:
        """The lines below it."""
        return taken(self.documentation, self.is_own, self.line + self.text.count("\n"))

    def render(self) -> str:
        """The text of the member, with its lead and its documentation."""
        return self.lead + self.text + self.documentation


class ClassChange(NamedTuple):
    """A statement below a class that changes it."""

    node: ast.stmt
    text: str
    """Its whole lines, with the blank lines and comments above it; ends with a newline."""
    line: int
    """The line that `text` begins with, where the class begins with line 1."""
    binds_anew: bool = False
    """Whether it gives the name of the class to something else, on some condition at least."""

    @property
    def attribute(self) -> str:
        """`x` of `Class.x = value` or `setattr(Class, "x", value)`; "" for another change."""
        return self._sets[0]

    @property
    def makes_object(self) -> bool:
        """Whether the value that it sets may be an object that only this statement makes."""
        made = (ast.Call, ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Lambda)
        return any(isinstance(node, made) for node in walk(self._sets[1]))

    @property
    def decorator(self) -> str:
        """`f` of `Class = f(Class)`; "" for another change."""
        match self.node:
            case ast.Assign([ast.Name(name)], ast.Call(called, [ast.Name(given)], [])) if name == given:
                return written(called)
        return ""

    @property
    def _sets(self) -> tuple[str, ast.AST]:
        match self.node:
            case ast.Assign([ast.Attribute(ast.Name(), name)], value):
                return name, value
            case ast.Expr(ast.Call(ast.Name("setattr"), [ast.Name(), ast.Constant(str() as name), value], [])):
                return name, value
        return "", self.node


def changes_below(text: str) -> tuple[ClassChange, ...]:
    """The statements that are joined to a class, in order."""
    lines = lines_of(text)
    end = _end(text, lines)
    if not any(map(str.strip, lines[end:])):
        return ()
    moved = len(block_lines(text)[1]) - len(lines)
    found: list[ClassChange] = []
    name = class_node(text).name
    for node in parse(text).body[1:]:
        last = node.end_lineno or 0
        binds_anew = name in bindings_of(node).binds
        found.append(ClassChange(node, "".join(lines[end:last]), end + 1 + moved, binds_anew))
        end = last
    return tuple(found)


@dataclass(frozen=True)
class ClassBlock:
    """A class taken apart."""

    node: ast.ClassDef
    decorators: str
    """The lines of its decorators, with the comments between them."""
    docstring: str
    """The lines of its docstring, with those above it; "" without one."""
    members: tuple[Member, ...]
    body_line: int
    """The line of the class that its body begins with, from 1, with the comments above its first statement."""

    @property
    def bases(self) -> list[str]:
        return [written(base) for base in self.node.bases]

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names that its members bind."""
        return frozenset[str]().union(*(member.binds for member in self.members))

    @cached_property
    def binds_anew(self) -> frozenset[str]:
        """The names that its members bind without a `super()` call: nothing of a parent's member is left. An accessor
        (`@size.setter`) leaves the other ones of its property.
        """
        return frozenset[str]().union(
            *(
                member.binds
                for member in self.members
                if "super(" not in member.text and not (member.is_function and decorated_by(member.function))
            )
        )

    def leaves(self, change: ClassChange, inherited: Set[str]) -> bool | None:
        """Whether this class, an heir, has what a change of its parent sets: False if a member of it comes first; None if
        one body cannot say it. A class that is bound anew by a call, as by a decorator, stands for an heir that overrides none
        of the members `inherited`; one that is bound anew otherwise, for an heir without any members.
        """
        if change.binds_anew:
            has_members = not all(one.carries_nothing for one in self.members)
            is_apart = not self.decorators and self.binds.isdisjoint(inherited)
            return True if not has_members or (is_apart and bool(change.decorator)) else None
        members = [one for one in self.members if change.attribute in one.binds]
        if not change.attribute or any("super" in one.text for one in members):
            return None
        return not members


def parse_class(text: str, is_own: bool = True) -> ClassBlock:
    """Take a class at the top level of a module apart. Its body is given back with an indentation of four spaces.
    `is_own` says whether it is the class of the modular file, or the parent of one.
    """
    node, lines = block_lines(text)
    end = first_line(node.body[0], lines) - 1
    # Comments between the header and the body belong to the first member.
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
        end -= 1
    statements = (Member(*one, is_own=is_own) for one in cut_block(node.body, lines, end, INDENT))
    members = _with_documentation(statements)
    docstring = members.pop(0).render() if members and is_docstring(members[0].node) else ""
    decorators = "".join(lines[first_line(node, lines) - 1 : node.lineno - 1])
    return ClassBlock(node, decorators, docstring, tuple(members), end + 1)


def block_lines(text: str) -> tuple[ast.ClassDef, list[str]]:
    """The syntax tree of a class and its lines, in which the members of `parse_class` count their lines, with those of the
    changes below it.
    """
    node, lines, changes = _parse(text)
    first = node.body[0]
    if lines[first_line(first, lines) - 1][: first.col_offset] != INDENT:
        node, lines, _ = _parse(with_standard_indentation("".join(lines), INDENT))
    return node, [*lines, *changes]


def with_standard_indentation(text: str, indentation: str) -> str:
    """The text with the indentation given for each level; the insides of strings stay as they are.

    Raises:
        SyntaxError: libcst does not know the syntax, although Python does.
    """
    import libcst as cst  # takes as long as converting a model

    class Reindent(cst.CSTTransformer):
        def leave_IndentedBlock(
            self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
        ) -> cst.IndentedBlock:
            return updated_node.with_changes(indent=None)

    try:
        module = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        raise SyntaxError(error.message) from None
    return module.visit(Reindent()).with_changes(default_indent=indentation).code


def lines_of(text: str) -> list[str]:
    """The lines of a text. Not `splitlines`: form feeds and Unicode separators end no line of Python."""
    return [line + "\n" for line in text.removesuffix("\n").split("\n")]


def _end(text: str, lines: list[str]) -> int:
    """The number of lines of the class that a text begins with, with the comments at its end."""
    return end_with_footer(lines, class_node(text).end_lineno or 0, len(lines), 0)


def _parse(text: str) -> tuple[ast.ClassDef, list[str], list[str]]:
    """The syntax tree of a class and its lines, with a body that begins on a line of its own, and the lines of the changes
    below it.
    """
    lines = lines_of(text)
    node, end = class_node(text), _end(text, lines)
    if any(map(str.strip, lines[end:])):
        return (*_parse("".join(lines[:end]))[:2], lines[end:])
    first = node.body[0]
    row = lines[first.lineno - 1]
    start = character_column(row, first.col_offset)
    if row[:start].strip() and not getattr(first, "decorator_list", None):
        lines[first.lineno - 1] = f"{row[:start].rstrip()}\n{INDENT}{row[start:]}"
        return _parse("".join(lines))
    return node, lines, []


class CutStatement(NamedTuple):
    """A statement of a block; see `Member`."""

    node: ast.stmt
    lead: str
    text: str
    line: int


def cut_block(nodes: Sequence[ast.stmt], lines: list[str], start: int, indentation: str) -> Iterator[CutStatement]:
    """Cut the lines from `start` (from 0) on into the statements of a block; those that share a line are parted."""
    for node, following in itertools.zip_longest(nodes, nodes[1:]):
        first, end = first_line(node, lines) - 1, node.end_lineno or 0
        if following is not None and first_line(following, lines) == end:
            row = lines[end - 1]
            row = row[: character_column(row, node.end_col_offset or 0)]
            last, rows = end, [*lines[first : end - 1], row + "\n"]
        else:
            limit = first_line(following, lines) - 1 if following else len(lines)
            last = end_with_footer(lines, end, limit, len(indentation))
            rows = lines[first:last]
        if first < start:  # behind a semicolon, or behind the colon of the block
            rows[0] = indentation + rows[0][character_column(rows[0], node.col_offset) :]
        yield CutStatement(node, "".join(lines[start:first]), "".join(rows), first + 1)
        start = last


def _with_documentation(members: Iterable[Member]) -> list[Member]:
    """The members, with the strings that stand directly below an attribute as its documentation."""
    found: list[Member] = []
    for member in members:
        has_blank_line = any(not line.strip() for line in member.lead.split("\n")[:-1])
        if found and is_docstring(member.node) and not has_blank_line and found[-1].is_attribute:
            documentation = found[-1].documentation + member.lead + member.text
            found[-1] = replace(found[-1], documentation=documentation)
        else:
            found.append(member)
    return found


SUPER_KWARGS = "super_kwargs"
"""The parameter `**super_kwargs` stands for the parent's parameters."""


def inherited_name(method: str) -> str:
    """The private name under which a generated class has a method of its parent beside the override that calls it."""
    return f"__inherited_{method.strip('_')}"


@dataclass(frozen=True)
class Method:
    """A method of a class."""

    node: Function
    owner: str = ""
    """The class, whose name may stand in `super(NewMLP, self)`; "" where any may."""

    @property
    def name(self) -> str:
        """The name after `def`."""
        return self.node.name

    @cached_property
    def instance(self) -> str:
        """See `instance_of`."""
        return instance_of(self.node)

    @cached_property
    def bindings(self) -> Bindings:
        return bindings_in(self.node)

    @property
    def super_kwargs(self) -> ast.arg | None:
        """The parameter `**super_kwargs`, which stands for the parameters of the parent's method."""
        parameter = self.node.args.kwarg
        return parameter if parameter is not None and parameter.arg == SUPER_KWARGS else None

    @cached_property
    def super_calls(self) -> Sequence[tuple[str, ast.AST]]:
        """The methods that `super().method(…)` calls, each with the call; those in nested functions included."""
        calls = ((super_method(node, self.owner), node) for node in walk(self.node))
        return [(method, node) for method, node in calls if method]

    @cached_property
    def _super_statement(self) -> int | None:
        statements = enumerate(self.node.body)
        return next((number for number, node in statements if is_super_statement(node, self.name, self.owner)), None)

    @property
    def replaced_call(self) -> ast.expr | None:
        """The call `super().<this method>(…)` that the converter replaces by the parent's body.

        It is the first one that is a whole statement, or all that a statement returns.
        """
        return None if self._super_statement is None else statement_value(self.node.body[self._super_statement])

    @property
    def is_stub(self) -> bool:
        """Whether it only raises an `AttributeError`. Such a property serves `hasattr` and is no stub."""
        if self.node.decorator_list:
            return False
        first, *rest = self.node.body
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and rest:
            first, *rest = rest
        return isinstance(first, ast.Raise) and not rest and makes_attribute_error(first.exc)

    @property
    def deletions(self) -> Iterator[ast.Attribute]:
        """The targets of `del self.x` behind the replaced call: the converter removes the parent's `self.x = …`."""
        if self._super_statement is None:
            return
        for node in self.node.body[self._super_statement + 1 :]:
            targets = node.targets if isinstance(node, ast.Delete) else []
            yield from (target for target in targets if isinstance(target, ast.Attribute) and self.owns(target))

    @property
    def assigned(self) -> set[str]:
        """The attributes of the instance that statements at the top level of the body assign first."""
        return set().union(*map(self.assigned_by, self.node.body))

    def owns(self, node: ast.Attribute) -> bool:
        """Whether this is an attribute of the instance: `self.x`."""
        return self.instance != "" and dotted(node.value) == self.instance

    def assigned_by(self, node: ast.stmt) -> set[str]:
        """The attribute of the instance that a statement assigns first, if any."""
        return {one.attr for one in targets_of(node)[:1] if isinstance(one, ast.Attribute) and self.owns(one)}

    def reads(self, attribute: str) -> bool:
        """Whether it reads an attribute of the instance."""
        return f"{self.instance}.{attribute}" in self.bindings.read_paths

    def calls(self, method: str) -> bool:
        """Whether it calls another method of the instance."""
        path = f"{self.instance}.{method}"
        return any(dotted(call.func) == path for scope in self.bindings.everywhere for call in scope.calls)

    def binds(self, attribute: str) -> bool:
        """Whether it sets an attribute of the instance, which it need not have before as `self.x += 1` does."""
        path = f"{self.instance}.{attribute}"
        return any(dotted(node) == path for scope in self.bindings.everywhere for node in scope.sets)


@dataclass(frozen=True)
class Members:
    """A class as its members."""

    node: ast.ClassDef

    @cached_property
    def methods(self) -> tuple[Method, ...]:
        """The methods in order; a property and its setter are two methods of one name."""
        return tuple(Method(node, self.node.name) for node in self.node.body if isinstance(node, Function))

    @cached_property
    def by_name(self) -> Mapping[str, Method]:
        """The methods by name; of several with one name the last."""
        return {method.name: method for method in self.methods}

    @cached_property
    def bindings(self) -> Bindings:
        return bindings_in(self.node)

    @property
    def names(self) -> frozenset[str]:
        """The names that the statements of the class bind or declare, on some condition or on none."""
        return self.bindings.binds | self.bindings.declares

    @cached_property
    def base_names(self) -> frozenset[str]:
        """The names that occur in its bases."""
        return frozenset(node.id for base in self.node.bases for node in walk(base) if isinstance(node, ast.Name))

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing but `pass`."""
        return all(isinstance(node, ast.Pass) for node in self.node.body)

    @property
    def removals(self) -> Iterator[ast.Name]:
        """The targets of `x = AttributeError(…)`, which removes the parent's `x`."""
        return self._names_assigned(makes_attribute_error)

    @property
    def named_exceptions(self) -> Iterator[ast.Name]:
        """The targets of `x = AttributeError`, which removes nothing."""
        return self._names_assigned(lambda value: getattr(value, "id", "") == "AttributeError")

    def _names_assigned(self, wanted: Callable[[ast.AST | None], bool]) -> Iterator[ast.Name]:
        """The first targets of the assignments of some values, where they are plain names."""
        for node in self.node.body:
            if wanted(getattr(node, "value", None)):
                yield from (target for target in targets_of(node)[:1] if isinstance(target, ast.Name))

    def binds(self, attribute: str) -> bool:
        """Whether instances have an attribute from this class: assigned, defined, or registered under its name."""
        if attribute in self.names:
            return True
        functions = (one.node for one in self.bindings.inner if isinstance(one.node, FUNCTIONS))
        if any(Method(node).binds(attribute) for node in functions):
            return True
        # A call such as `self.register_buffer("x", …)` or `setattr(self, "x", …)` binds `x`.
        first = (one for scope in self.bindings.everywhere for call in scope.calls for one in call.args[:2])
        return any(isinstance(one, ast.Constant) and one.value == attribute for one in first)


def makes_attribute_error(value: ast.AST | None) -> bool:
    """Whether this is `AttributeError(…)`: assigned or raised in a child, it takes a member of the parent away."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "AttributeError"


@functools.lru_cache(maxsize=128)
def class_node(text: str) -> ast.ClassDef:
    """The syntax tree of a class, which must not be changed: the merge and the checks of rules share it."""
    node = parse(text).body[0]  # changes of the class may stand below it
    assert isinstance(node, ast.ClassDef)
    return node


@functools.lru_cache(maxsize=128)
def names_in_class(text: str) -> frozenset[str]:
    """The names that the statements of a class bind: many classes have the same ancestors."""
    return Members(class_node(text)).names
