"""The arguments of a `super()` call that is replaced by the parent's body: carried over, bound, or reported."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Container, Iterator, Mapping, Sequence

from modular_converter.convert.inherit.differences import Bodies
from modular_converter.convert.inherit.statements import Line, line
from modular_converter.findings import ClassFinding, finding_at
from modular_converter.model.bindings import EMPTY, Function, bindings_of, parameters_of, signature_of
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.model.nodes import children, walk
from modular_converter.model.overriding import first_parameter, mappings, method_call, starred
from modular_converter.rules import calls_of_super


BINDING = ("staticmethod", "classmethod")
"""The decorators that leave the parameters of a method as they are."""


def bind_arguments(bodies: Bodies, body: Sequence[Line], findings: list[ClassFinding]) -> list[Line]:
    """Assignments of the parent's parameters for which the child has no name; `scale = 2` for `super().f(scale=2)`.

    They are in the order of the call; between them stand the unread arguments that call something.

    Args:
        body: the remaining statements of the parent.
        findings: extended by the arguments that do not reach the parent's statements.
    """
    child, parent, instance, statement = bodies.child, bodies.parent, bodies.instance, bodies.call
    call = method_call(statement, child.name)
    assert call is not None
    assigned = frozenset[str]().union(*(part.bindings.local for part in bodies.before))
    names = bodies.parameters | assigned
    given = _given(call, instance, parent)
    defaults = _defaults(parent) if not (starred(call) or mappings(call)) else {}
    found = {
        name: finding_at(statement, calls_of_super.unpacked, child.name, name)
        for name in _unpacked(call, given, parent)
    }
    for name in _left_out(call, given, parent) & (parameters_of(child) | assigned):
        passed = _as_passed(name, parent)
        found[name] = finding_at(statement, calls_of_super.not_passed, child.name, passed)
    lacking = [
        name for name in parameters_of(parent) if name in found or not _has_its_name(given.get(name), name, names)
    ]
    read = frozenset[str]().union(*(part.effects.reads for part in body)) if lacking else ()
    lacking = [name for name in lacking if name in read]
    arguments_read = _arguments_read([part.node for part in body]) if {*lacking} - given.keys() else ()
    bindings: dict[str, ast.expr] = {}
    ignored = {name: given[name] for name in lacking if name in names and name in given}
    reported = {*ignored}
    for name in (name for name in lacking if name not in ignored):
        value = given.get(name, defaults.get(name))
        if name in found or (value is None and name in arguments_read):
            reported.add(name)
            findings.append(found.get(name) or finding_at(statement, calls_of_super.no_value, child.name, name))
        elif value is not None and (name in given or name in arguments_read):
            bindings[name] = value
    findings += _report_ignored(ignored, bindings, child.name, parent)
    for one in _surplus(call, instance, parent):
        findings.append(finding_at(one, calls_of_super.not_taken, child.name, ast.unparse(one)))
    lines = _in_order(call, given, bindings, reported, statement)
    hidden = frozenset[str]().union(*(part.effects.reads for part in lines)) & bindings.keys()
    findings += [finding_at(statement, calls_of_super.no_value, child.name, name) for name in sorted(hidden)]
    return lines


def _report_ignored(
    ignored: Mapping[str, ast.expr], bindings: Mapping[str, ast.expr], method: str, parent: Function
) -> Iterator[ClassFinding]:
    """The arguments for which the child has names of its own, each with the assignment that gives it effect. If one of
    them reads the name of another, as in `super().f(k, q)` of `f(self, q, k)`, one assignment serves all.
    """
    reading = {
        name: value
        for name, value in (*ignored.items(), *bindings.items())
        if (bindings_of(value).read_paths & ignored.keys()) - {name}
    }
    together = {**ignored, **reading} if reading else {}
    for name, value in ignored.items():
        assigned = together or {name: value}
        values = ", ".join(map(ast.unparse, assigned.values()))
        passed = [_as_passed(one, parent) for one in assigned]
        cure = f"{', '.join(assigned)} = {values}"
        yield finding_at(value, calls_of_super.super_argument_ignored, method, name, ast.unparse(value), cure, passed)


def _as_passed(name: str, function: Function) -> str:
    """A parameter of a function as it is written in a call: `x`, `*args`, `**kwargs`."""
    arguments = function.args
    if arguments.vararg is not None and name == arguments.vararg.arg:
        return f"*{name}"
    return f"**{name}" if arguments.kwarg is not None and name == arguments.kwarg.arg else name


def _in_order(
    call: ast.Call,
    given: Mapping[str, ast.expr],
    bindings: Mapping[str, ast.expr],
    reported: Container[str],
    statement: ast.stmt,
) -> list[Line]:
    """The assignments, and the other arguments that call something, as Python evaluates the arguments of the call."""
    texts: list[str] = []
    waiting = dict(bindings)
    owners = {id(part): name for name, value in reversed([*given.items()]) for part in walk(value)}
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        name = owners.get(id(argument), "")
        if name in waiting:
            texts.append(f"{name} = {ast.unparse(waiting.pop(name))}")
        elif name not in bindings and name not in reported and _calls(argument):
            texts.append(ast.unparse(argument.value if isinstance(argument, ast.Starred) else argument))
    texts += [f"{name} = {ast.unparse(default)}" for name, default in waiting.items()]
    return [line(text, statement) for text in texts]


def _calls(node: ast.AST) -> bool:
    """Whether an expression contains a call or another operation that may have an effect."""
    if isinstance(node, (ast.Lambda, ast.GeneratorExp)):
        return False
    changes = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return isinstance(node, changes) or any(map(_calls, ast.iter_child_nodes(node)))


def _has_its_name(value: ast.expr | None, name: str, names: Container[str]) -> bool:
    """Whether a parameter of the parent has its value in the child under its own name."""
    return name in names if value is None else ast.unparse(value) == name


def _arguments_read(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that statements read, except those that a `for` over the name has bound to something else."""
    found: set[str] = set()
    todo: list[tuple[ast.AST, frozenset[str]]] = [(node, frozenset()) for node in nodes]
    while todo:
        node, replaced = todo.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.update({node.id} - replaced)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.update({node.target.id} - replaced)
        within = replaced
        if isinstance(node, (ast.For, ast.AsyncFor)) and isinstance(node.target, ast.Name):
            todo += ((part, replaced) for part in (node.iter, *node.orelse))
            within |= {node.target.id}
        todo += ((part, within) for part in children(node))
    return found


def _surplus(call: ast.Call, instance: str, parent: Function) -> Iterator[ast.expr]:
    """The arguments that the parent's method does not take, so that the call would fail with inheritance."""
    if any(ast.unparse(one) not in BINDING for one in parent.decorator_list):
        return  # a decorator may take more
    positional, arguments = _positional(call, instance, parent)
    if parent.args.vararg is None and not starred(call):
        yield from arguments[len(positional) :]
    if parent.args.kwarg is None:
        named = {*positional, *(one.arg for one in parent.args.kwonlyargs), None}
        yield from (keyword.value for keyword in call.keywords if keyword.arg not in named)


def _positional(call: ast.Call, instance: str, parent: Function) -> tuple[list[str], list[ast.expr]]:
    """The parameters of the parent and the arguments of a call by position, both without the instance."""
    is_passed = bool(call.args and instance) and ast.unparse(call.args[0]) == instance
    parameters = [one.arg for one in (*parent.args.posonlyargs, *parent.args.args)]
    return parameters[bool(first_parameter(parent)) :], call.args[is_passed:]


def _given(call: ast.Call, instance: str, parent: Function) -> dict[str, ast.expr]:
    """The arguments of a call by parameter of the parent. An instance that is passed along is left out."""
    own = first_parameter(parent)
    positional, arguments = _positional(call, instance, parent)
    named = {*positional, *(parameter.arg for parameter in parent.args.kwonlyargs)}
    given: dict[str, ast.expr] = {own: ast.Name(instance, ast.Load())} if own and instance else {}
    for position, argument in enumerate(arguments):
        if isinstance(argument, ast.Starred) or position >= len(positional):
            break
        given[positional[position]] = argument
    given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg in named and keyword.arg}
    if parent.args.kwarg is not None:
        others = [
            one
            for one in call.keywords
            if one.arg not in given and not (one.arg is None and _is_super_kwargs(one.value))
        ]
        if len(others) == 1 and others[0].arg is None:
            given[parent.args.kwarg.arg] = others[0].value
        elif others:
            given[parent.args.kwarg.arg] = ast.Call(ast.Name("dict", ast.Load()), [], others)
    first_starred = next((at for at, one in enumerate(arguments) if isinstance(one, ast.Starred)), len(arguments))
    if parent.args.vararg is not None and len(arguments) > len(positional) <= first_starred:
        rest = arguments[len(positional) :]
        only = rest[0].value if len(rest) == 1 and isinstance(rest[0], ast.Starred) else None
        given[parent.args.vararg.arg] = only or ast.Tuple(rest, ast.Load())
    return given


def _left_out(call: ast.Call, given: Mapping[str, ast.expr], parent: Function) -> frozenset[str]:
    """The parameters for which a call uses the parent's defaults, unless `*args` or `**kwargs` brings them, and those of
    the parent's `*args` and `**kwargs` that no unpacked argument can fill.

    There are none where the call would fail, as `super().f()` may.
    """
    unpacked: dict[object, list[ast.expr]] = {
        inspect.Parameter.VAR_POSITIONAL: starred(call),
        inspect.Parameter.VAR_KEYWORD: mappings(call),
    }
    if not (_required(parent) <= given.keys() or starred(call) or mappings(call)):
        return frozenset()
    parameters = signature_of(parent.args).parameters.values()
    found = (one.name for one in parameters if one.default is not EMPTY or unpacked.get(one.kind) == [])
    return frozenset(found) - given.keys()


def _unpacked(call: ast.Call, given: Mapping[str, ast.expr], parent: Function) -> frozenset[str]:
    """The parameters without a default whose values only an unpacked argument of a call can give: `super().f(*x)`.
    `*rest` of the parent is one of them if the unpacked argument gives other parameters first.
    """
    rest = {parent.args.vararg.arg} if starred(call) and parent.args.vararg is not None else frozenset()
    unpacks = starred(call) or not all(map(_is_super_kwargs, mappings(call)))
    return (_required(parent) | rest) - given.keys() if unpacks else frozenset()


def _required(function: Function) -> frozenset[str]:
    """The parameters without a default, except for the instance."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = (one for one in signature_of(function.args).parameters.values() if one.kind not in variadic)
    return frozenset(one.name for one in found if one.default is EMPTY) - {first_parameter(function)}


def _is_super_kwargs(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == SUPER_KWARGS


def _defaults(function: Function) -> dict[str, ast.expr]:
    """The defaults with the same meaning within a method as in its signature: constants, and an empty tuple for
    `*args`.
    """
    parameters = signature_of(function.args).parameters.values()
    found = {one.name: one.default for one in parameters if one.default is not EMPTY and _is_literal(one.default)}
    if function.args.vararg is not None:
        found[function.args.vararg.arg] = ast.Tuple([], ast.Load())
    if function.args.kwarg is not None:
        found[function.args.kwarg.arg] = ast.Dict([], [])
    return found


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return _is_literal(node.operand)
    if isinstance(node, ast.Tuple):
        return all(map(_is_literal, node.elts))
    return isinstance(node, ast.Constant)
