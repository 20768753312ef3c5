"""One override merged with the parent's method, on the syntax trees of libcst: the text of each keeps its form."""

from __future__ import annotations

import ast
import copy
import functools
import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import libcst as cst
from libcst.helpers import get_full_name_for_node

from modular_converter.convert.inherit.bases import ClassShape
from modular_converter.convert.inherit.statements import Body, Line, Overrides, body_of, with_body
from modular_converter.convert.inherit.super_calls import Merge, merge_statements
from modular_converter.convert.inherit.taken import taken_statements
from modular_converter.findings import ClassFinding, character_column, finding_at
from modular_converter.model.bindings import Function, bindings_in, parameters_of
from modular_converter.model.class_blocks import Member
from modular_converter.model.index import end_with_footer, first_line
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.model.nodes import parse, walk
from modular_converter.model.overriding import (
    NO_DECORATORS,
    calls_base,
    first_parameter,
    inherited_decorators,
    method_call,
)
from modular_converter.rules import calls_of_super, merged_bodies


class CallSuper(cst.CSTTransformer):
    """Writes `super().method(…)` for `Base.method(self, …)` where both call the same method. It is used on a method's
    body.

    Calls in inner functions, lambdas, comprehensions and classes stay: `super()` finds no instance there.
    """

    def __init__(self, method: str, reached: Container[str], instance: str) -> None:
        """`reached` holds the bases that `super()` reaches, `instance` is the name of the method's first parameter."""
        super().__init__()
        self.method, self.reached, self.instance = method, reached, instance

    def _stay_out(self, node: cst.CSTNode) -> bool:
        return False

    visit_FunctionDef = visit_Lambda = visit_ClassDef = _stay_out
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _stay_out

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        function = updated_node.func
        if not isinstance(function, cst.Attribute) or function.attr.value != self.method:
            return updated_node
        if _dotted(function.value) not in self.reached:
            return updated_node
        first = updated_node.args[0] if updated_node.args else None
        if first is not None and not first.star and first.keyword is None and _dotted(first.value) == self.instance:
            # The white space around it is removed with it, comments included.
            no_space = cst.SimpleWhitespace("")
            updated_node = updated_node.with_changes(args=updated_node.args[1:], whitespace_before_args=no_space)
        return updated_node.with_changes(func=function.with_changes(value=cst.Call(cst.Name("super"))))


def _dotted(node: cst.BaseExpression) -> str:
    """`a.b.c` as text, or "" for any other expression."""
    inner = node
    while isinstance(inner, cst.Attribute):
        inner = inner.value
    return (get_full_name_for_node(node) or "") if isinstance(inner, cst.Name) else ""


STAND_IN = "_"

INDENTATION = 8
"""The indentation of a method's statements. Only a block with this indentation can be moved unchanged."""


class Shortened(NamedTuple):
    """The text of a method, with `_` for most statements of its body."""

    text: str
    statements: tuple[str, ...]
    """The text of each statement of the body that `_` stands for; "" for one that is still there."""


def shorten(member: Member, rewritten: str) -> Shortened:
    """Take out the statements of a method that are moved unchanged.

    Args:
        rewritten: the method whose calls on a base may be rewritten; "" for none.
    """
    lines = [*itertools.repeat("", member.line - 1), *member.text.split("\n")]
    starts = [*itertools.accumulate((len(line) + 1 for line in lines[member.line - 1 :]), initial=0)]
    pieces: list[str] = []
    statements: list[str] = []
    done = 0
    for node, (first, column, last, end_column) in zip(member.function.body, _places(member.function.body, lines)):
        start, end = starts[first - member.line] + column, starts[last - member.line] + end_column
        text = member.text[start:end]
        if _may_change(node) or (rewritten and calls_base(text, rewritten)):
            statements.append("")
        else:
            pieces += member.text[done:start], STAND_IN
            statements.append(text)
            done = end
    return Shortened("".join((*pieces, member.text[done:])), tuple(statements))


def _places(nodes: list[ast.stmt], lines: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Line and column of the start and of the end of each statement; the comments at its end belong to a block."""
    for node, following in itertools.zip_longest(nodes, nodes[1:]):
        first, last = first_line(node, lines), node.end_lineno or node.lineno
        start, end = character_column(lines[first - 1], node.col_offset), node.end_col_offset or 0
        limit = first_line(following, lines) - 1 if following is not None else len(lines)
        below = end_with_footer(lines, last, limit, node.col_offset) if _is_block(node) else last
        yield first, start, below, character_column(lines[last - 1], end) if below == last else len(lines[below - 1])


def _may_change(node: ast.stmt) -> bool:
    """Whether a merge may rewrite a statement: a `return`, one with several targets, a block with another indentation."""
    targets = getattr(node, "targets", ())
    moves_badly = _is_block(node) and node.col_offset != INDENTATION
    return isinstance(node, ast.Return) or len(targets) > 1 or moves_badly


def _is_block(node: ast.stmt) -> bool:
    return hasattr(node, "body") or isinstance(node, ast.Match)


def merge_signature(child: cst.FunctionDef, parent: cst.FunctionDef, has_instance: bool) -> cst.FunctionDef:
    """The child with the completed signature. A missing return annotation is taken from the parent; `**super_kwargs`
    stands for the parent's parameters, which the child's override and extend. A comment behind the opening parenthesis
    is the parent's, as in all published files up to 5.12 that have one (granitemoehybrid).

    Args:
        has_instance: whether the first parameter is the instance or the class, whose name may differ in the two.

    Raises:
        libcst.CSTValidationError: a parameter without a default would follow one with a default.
    """
    keywords = child.params.star_kwarg
    from_parent = _has_comment(child) or _has_comment(parent)
    if keywords is not None and keywords.name.value == SUPER_KWARGS:
        from_parent |= (nothing := _says_nothing(child.params, parent.params))
        params = parent.params if nothing else _merge(child.params, parent.params, has_instance)
        child = child.with_changes(params=params)
    if from_parent:
        child = child.with_changes(whitespace_before_params=parent.whitespace_before_params)
    if child.returns is None and parent.returns is not None:
        child = child.with_changes(returns=parent.returns)
    return child


def _has_comment(method: cst.FunctionDef) -> bool:
    """Whether a comment stands between the opening parenthesis and the first parameter."""
    space = method.whitespace_before_params
    return isinstance(space, cst.ParenthesizedWhitespace) and (
        space.first_line.comment is not None or any(line.comment is not None for line in space.empty_lines)
    )


def _says_nothing(child: cst.Parameters, parent: cst.Parameters) -> bool:
    """Whether the child has no more than the parent's first parameter and `**super_kwargs`."""
    own, first = [*_named(child)], _positional(parent)[:1]
    return not isinstance(child.star_arg, cst.Param) and [*map(_name, own)] in ([], [*map(_name, first)])


def _merge(child: cst.Parameters, parent: cst.Parameters, has_instance: bool) -> cst.Parameters:
    """The parent's parameters, overridden in place and extended by the child's; its `**kwargs` stay."""
    overriding = {_name(parameter): parameter for parameter in _named(child)}
    taken = set(map(_name, _named(parent)))
    if has_instance:
        for own, inherited in zip(_positional(child)[:1], _positional(parent)[:1]):
            overriding[_name(inherited)] = own
            taken.add(_name(own))

    def overridden(inherited: Sequence[cst.Param], own: Sequence[cst.Param]) -> list[cst.Param]:
        found = [overriding.get(_name(parameter), parameter) for parameter in inherited]
        found += (parameter for parameter in own if _name(parameter) not in taken)
        return [parameter.with_changes(comma=_plain(parameter.comma)) for parameter in found]

    variadic = child.star_arg if isinstance(child.star_arg, cst.Param) else parent.star_arg
    merged = cst.Parameters(
        posonly_params=overridden(parent.posonly_params, child.posonly_params),
        params=overridden(parent.params, child.params),
        # A lone `*` is written anew where it is needed.
        star_arg=variadic if isinstance(variadic, cst.Param) else cst.MaybeSentinel.DEFAULT,
        kwonly_params=overridden(parent.kwonly_params, child.kwonly_params),
        star_kwarg=parent.star_kwarg,
    )
    return merged


def _plain(comma: cst.Comma | cst.MaybeSentinel) -> cst.Comma | cst.MaybeSentinel:
    """A comma on one line. One behind the last parameter makes the formatter put each on a line of its own."""
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")) if isinstance(comma, cst.Comma) else comma


def _named(parameters: cst.Parameters) -> list[cst.Param]:
    return [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]


def _positional(parameters: cst.Parameters) -> list[cst.Param]:
    return [*parameters.posonly_params, *parameters.params]


def _name(parameter: cst.Param) -> str:
    return parameter.name.value


def with_parents_parameters(child: Member, parent: Function) -> Member:
    """`def f(self, x, *args, **kwargs)` that hands all to `super().f(x, *args, **kwargs)`, and does nothing else with `args`
    and `kwargs`, with the parent's parameters in place of both. Any other override stays as it is.
    """
    function, own = child.function, child.function.args
    call = next((found for node in function.body if (found := method_call(node, function.name))), None)
    theirs = [*parent.args.posonlyargs, *parent.args.args]
    if call is None or not theirs or parent.decorator_list or not _only_passes_on(function, call):
        return child
    scope, names = bindings_in(function), parameters_of(parent) - {theirs[0].arg}
    if names & (scope.local | scope.module_names) - {*parameters_of(function)}:
        return child
    parameters = _parameters_of_both(own, parent.args)
    if parameters is None:
        return child
    assert own.kwarg is not None
    passed = [one.arg for one in theirs[1:]]
    passed += [f"*{parent.args.vararg.arg}"] if parent.args.vararg else []
    passed += [f"{one.arg}={one.arg}" for one in parent.args.kwonlyargs]
    passed += [f"**{parent.args.kwarg.arg}"] if parent.args.kwarg else []
    text = _replaced(child, call.args[0], call.keywords[-1], ", ".join(passed))
    text = _replaced(replace(child, text=text), own.args[0], own.kwarg, ast.unparse(parameters))
    holder = parse("\n" * (child.line - 2) + f"class _:\n{text}").body[0]
    assert isinstance(holder, ast.ClassDef)
    return replace(child, node=holder.body[0], text=text)


def _only_passes_on(function: Function, call: ast.Call) -> bool:
    """Whether a method has `*args` and `**kwargs`, and hands them to one call alone, behind its other parameters."""
    own = function.args
    if not (own.vararg and own.kwarg and own.args) or own.posonlyargs or own.kwonlyargs:
        return False
    given = [ast.unparse(one) for one in call.args] + [ast.unparse(one) for one in call.keywords]
    names = {own.vararg.arg, own.kwarg.arg}
    uses = [one for one in walk(*function.body) if isinstance(one, ast.Name) and one.id in names]
    wanted = [*(one.arg for one in own.args[1:]), f"*{own.vararg.arg}", f"**{own.kwarg.arg}"]
    return given == wanted and len(uses) == len(names)


def _parameters_of_both(own: ast.arguments, parent: ast.arguments) -> ast.arguments | None:
    """The child's parameters, with the rest of the parent's in place of `*args` and `**kwargs`; None where the parent's
    begin otherwise, or where one without a default would stand behind one that has one.
    """
    whole = copy.deepcopy(parent)
    theirs = [*whole.posonlyargs, *whole.args]
    names = [one.arg for one in own.args]
    if names[1:] != [one.arg for one in theirs[1 : len(names)]] or (names[1:] and parent.posonlyargs):
        return None
    if len(names) == 1:
        theirs[0].arg = names[0]
        return whole
    defaults = [*[None] * (len(own.args) - len(own.defaults)), *own.defaults]
    rest = [*[None] * (len(theirs) - len(parent.defaults)), *parent.defaults][len(names) :]
    values = [value for value in (*defaults, *rest) if value is not None]
    is_valid = all(value is not None for value in (*defaults, *rest)[len(theirs) - len(values) :])
    whole.args, whole.defaults = [*own.args, *theirs[len(names) :]], values
    return whole if is_valid else None


def _replaced(member: Member, first: ast.expr | ast.arg, last: ast.arg | ast.keyword, new: str) -> str:
    """The text of a method with another text from one node to another; it keeps the number of its lines."""
    lines = member.text.split("\n")
    starts = [*itertools.accumulate((len(line) + 1 for line in lines), initial=0)]
    top, bottom = first.lineno - member.line, (last.end_lineno or last.lineno) - member.line
    start = starts[top] + character_column(lines[top], first.col_offset)
    end = starts[bottom] + character_column(lines[bottom], last.end_col_offset or 0)
    return f"{member.text[:start]}{new}{chr(10) * (bottom - top)}{member.text[end:]}"


HOLDER = "class _:\n"


def merge_override(
    child: Member, parent: Member, shape: ClassShape, overrides: Overrides, findings: list[ClassFinding]
) -> Member:
    """The child's method, completed from the parent's: decorators, signature, docstring, body.

    Args:
        shape: the generated class.
        overrides: the assignments behind `super()` calls of the class so far; extended.
        findings: extended by what cannot be merged.
    """
    original, child = child, with_parents_parameters(child, parent.function)
    taken = inherited_decorators(child.function, parent.function, shape.around.added)
    name = child.function.name
    rewritten = name if calls_base(child.text, name) else ""
    own, inherited = shorten(child, rewritten), shorten(parent, rewritten)
    try:
        holder, tree = _parse(own.text)
        parent_tree = _parse(inherited.text)[1]
        merged = merge_signature(
            _merge_decorators(tree, parent_tree, [one in taken for one in parent.function.decorator_list]),
            parent_tree,
            bool(first_parameter(child.function, parent.function, shape.around.added)),
        )
    except cst.ParserSyntaxError as error:
        findings.append(finding_at(child.node, merged_bodies.unknown_syntax, name, error.message))
        return child
    except cst.CSTValidationError as error:
        findings.append(finding_at(child.node, calls_of_super.bad_signature, name, error))
        return child
    child_body = body_of(tree, child.function, own.statements)
    parent_body = body_of(parent_tree, parent.function, inherited.statements)
    merge = Merge(child.function, parent.function, shape, child_body, parent_body, _names(merged), overrides, findings)
    docstring, lines = child_body.docstring or _inherited_docstring(parent_body, shape), merge_statements(merge)
    merged = with_body(merged, docstring, lines, child_body.footer)
    if rewritten:
        merged = call_super(merged, child, shape.reached_by(name))
    nodes = [part.origin for part in ([docstring] if docstring else []) + lines]
    statements = taken_statements(nodes, child.function, parent.function)
    return replace(original, lead=parent.lead, text=_text(holder, merged), statements=statements)


def call_super_for_bases(member: Member, reached: frozenset[str], findings: list[ClassFinding]) -> Member:
    """A method that overrides nothing, with `super().method(…)` for `Base.method(self, …)`."""
    try:
        holder, own = _parse(member.text)
    except cst.ParserSyntaxError as error:
        findings.append(finding_at(member.node, merged_bodies.unknown_syntax, member.function.name, error.message))
        return member
    return replace(member, text=_text(holder, call_super(own, member, reached)))


def call_super(method: cst.FunctionDef, member: Member, reached: frozenset[str]) -> cst.FunctionDef:
    """The method with its calls on explicit bases written as calls of `super()`."""
    instance = first_parameter(member.function)
    if not instance:
        return method
    body = method.body.visit(CallSuper(member.function.name, reached, instance))
    assert isinstance(body, cst.BaseSuite)
    return method.with_changes(body=body)


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> tuple[cst.Module, cst.FunctionDef]:
    """The syntax tree of a method, within that of a class that holds it alone. A parent has many heirs."""
    holder = cst.parse_module(HOLDER + text)
    (block,) = holder.body
    assert isinstance(block, cst.ClassDef)
    (method,) = block.body.body
    assert isinstance(method, cst.FunctionDef)
    return holder, method


def _text(holder: cst.Module, method: cst.FunctionDef) -> str:
    (block,) = holder.body
    assert isinstance(block, cst.ClassDef)
    body = block.body.with_changes(body=[method])
    return holder.with_changes(body=[block.with_changes(body=body)]).code.removeprefix(HOLDER)


def _merge_decorators(child: cst.FunctionDef, parent: cst.FunctionDef, taken: Sequence[bool]) -> cst.FunctionDef:
    """The child with the decorators of the parent that are taken, and its own; `@no_inherit_decorator` only means that
    none is taken.
    """
    own = [one for one in child.decorators if getattr(one.decorator, "value", "") != NO_DECORATORS]
    inherited = itertools.compress(parent.decorators, taken)
    below = (child if child.decorators else parent).lines_after_decorators
    return child.with_changes(decorators=[*inherited, *own], lines_after_decorators=below)


def _inherited_docstring(parent: Body, shape: ClassShape) -> Line | None:
    """The parent's docstring, if an override without one takes it: by its quotes."""
    tree = parent.docstring.tree if parent.docstring is not None else None
    if not isinstance(tree, cst.SimpleStatementLine):
        return None
    text = cst.Module([]).code_for_node(tree.body[0]).lstrip("rRuU")
    return parent.docstring if text.startswith(shape.settings.inherited_docstrings) else None


def _names(method: cst.FunctionDef) -> frozenset[str]:
    """The names of all parameters."""
    parameters = method.params
    variadic = [
        parameter for parameter in (parameters.star_arg, parameters.star_kwarg) if isinstance(parameter, cst.Param)
    ]
    named = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params, *variadic]
    return frozenset(parameter.name.value for parameter in named)
