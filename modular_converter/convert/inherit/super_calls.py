"""Overrides: a `super()` statement is replaced by the parent's body, into which the child's statements are merged;
the arguments of the call are carried over, bound, or reported.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from modular_converter.convert.inherit.bases import ClassMerge
from modular_converter.convert.inherit.differences import (
    Bodies,
    check_kinds,
    check_names,
    check_scopes,
    misplaced,
    repeated_behind_returns,
    returns_in,
    sets_up,
)
from modular_converter.convert.inherit.statements import (
    BODY_INDENT,
    Body,
    Line,
    added_line,
    counts_twice,
    deleted_again,
    only_removes,
)
from modular_converter.findings import ClassFinding, finding_at
from modular_converter.model.bindings import EMPTY, Function, bindings_of, parameters_of, signature_of
from modular_converter.model.class_blocks import SUPER_KWARGS
from modular_converter.model.nodes import children, decorators_of, is_super_statement, method_call, walk, walk_until
from modular_converter.model.overriding import first_parameter, mappings, starred
from modular_converter.rules import calls_of_super, merged_bodies


ROUNDS = 10
"""The most attempts at a body, each with more lines appended; after them all lines are appended."""


def merge_statements(
    child: Function, parent: Function, own: Body, inherited: Body, parameters: frozenset[str], merge: ClassMerge
) -> list[Line]:
    """The child's body with its first `super().<same method>(…)` statement replaced by the parent's body."""
    name, lines, theirs = child.name, own.lines, list(inherited.lines)
    positions = (place for place, one in enumerate(lines) if is_super_statement(one.node, name, merge.classes.name))
    position = next(positions, None)
    if position is None:
        return list(lines)
    call, before, after = lines[position].node, lines[:position], lines[position + 1 :]
    if isinstance(call, ast.Return) or any(isinstance(part.node, ast.Raise) for part in theirs):
        after = []  # lines that are never reached
    bodies = Bodies(merge, child, parent, parameters, before, call, theirs, after)
    first: list[Line] = []
    # Attributes of modules can be set only behind the call of the base's `__init__`.
    begins_with_base = name == "__init__" and bool(theirs) and is_super_statement(theirs[0].node, name)
    if before and begins_with_base and not _reads_changes(theirs[0], bodies):
        first.append(theirs.pop(0))
    after = _without_repeated(bodies, inherited.lines)
    bodies = replace(bodies, first=first, theirs=theirs, after=after)
    body = _merge_behind(bodies)
    merged, appended = body.merged, body.appended
    merge.findings.extend(_check_set_up(bodies, body))
    differing = [*_check_replacements(bodies, body.replaced)] or [
        *_check_local_names(bodies, body),
        *_check_unbound(bodies),
        *check_names(bodies, [*bodies.above, *merged, *appended], merged, merge.around.module_names),
    ]
    merge.findings.extend(differing)
    if appended:
        if theirs:  # the comments behind the parent's last statement
            appended[0] = replace(appended[0], spans=(inherited.footer, *appended[0].spans))
        merged = _reach_the_end(bodies, merged, appended)
    merge.findings.extend(check_kinds(bodies))
    nodes = {id(node) for node in parent.body}
    merge.findings.extend(check_scopes(bodies, [part for part in merged if id(part.origin) in nodes]))
    bindings = bind_arguments(bodies, [*first, *merged], merge.findings)
    result = [*bodies.above, *bindings, *merged, *appended]
    return _moved_last(result, merge.settings.last_statement) if name == "__init__" else result


def _reads_changes(line: Line, bodies: Bodies) -> bool:
    """Whether a line of the parent reads what the child's lines bind or change, or a parameter that has to be bound.

    The call of a base that sets the same attribute changes it anew.
    """
    attributes = (target.partition(".")[2] for part in bodies.before for target in part.targets if "." in target)
    if any(bodies.merge.around.is_set_above(bodies.name, attribute) for attribute in attributes):
        return True
    call = method_call(bodies.call, bodies.child.name)
    assert call is not None
    given = _given(call, bodies.instance, bodies.parent)
    changed = (parameters_of(bodies.parent) - bodies.parameters).union(
        (name for name in given if _is_computed(name, given, bodies)),
        *(part.effects.writes | part.effects.objects_changed for part in bodies.before),
    )
    return not line.effects.reads.isdisjoint(changed)


def _removes_too_much(bodies: Bodies, part: Line) -> bool:
    """Whether `del x` means a local name of the child or what other methods set before, or `self.x = self.x` an attribute
    that nothing else sets.
    """
    own = bodies.parameters.union(*(line.effects.binds for line in bodies.before))
    if any(name in (own if name.isidentifier() else bodies.set_elsewhere) for name in part.deleted):
        return True
    attributes = {path.removeprefix(f"{bodies.instance}.") for path in part.targets} if only_removes(part) else set()
    return bool(attributes) and attributes.isdisjoint(bodies.merge.attributes - bodies.merge.methods.keys())


@dataclass(frozen=True)
class _Merged:
    """The parent's statements with the child's in them."""

    merged: list[Line]
    appended: list[Line]
    """The child's statements that follow."""
    replaced: dict[str, list[Line]]
    """Target -> the parent's assignments that an override has replaced."""


def _merge_behind(bodies: Bodies) -> _Merged:
    """Merge the child's statements behind its `super()` call into the parent's statements.

    Assignments replace the parent's, `del` removes them, and a statement that the parent has is not repeated. A
    statement that would have another meaning at that place is appended, as with inheritance.
    """
    for part in bodies.after:
        bodies.merge.overrides.update(dict.fromkeys(part.targets, (part, bodies.name)))
    kept_behind = {*deleted_again(bodies.after)}
    kept_behind |= repeated_behind_returns(bodies.theirs, bodies.after)
    kept_behind |= {part for part in bodies.after if _removes_too_much(bodies, part)}
    for _ in range(ROUNDS):
        body = _proposed(bodies, kept_behind)
        more = misplaced(bodies, [*bodies.above, *body.merged, *body.appended]) - kept_behind
        if not more:
            return body
        kept_behind |= more
    return _proposed(bodies, set(bodies.after))


def _proposed(bodies: Bodies, kept_behind: set[Line]) -> _Merged:
    """The body in which exactly these lines stay behind the parent's."""
    blocks = _bound(part for part in bodies.theirs if not part.targets)
    # A name that the parent binds in a block, too, is deleted behind its body: nobody knows which assignments run.
    removed = {target for part in bodies.after for target in part.deleted if part not in kept_behind} - blocks
    overrides = {target: line for target, (line, _) in bodies.merge.overrides.items() if line not in kept_behind}
    merged: list[Line] = []
    placed: set[str] = set()
    gone: set[str] = set()
    replaced: dict[str, list[Line]] = {}
    for part in bodies.theirs:
        new = [target for target in part.targets if target in overrides]
        gone.update(set(part.targets) & removed)
        kept = part.without_targets({*removed, *new}) if removed.intersection(part.targets) or new else part
        if kept is not None:
            merged.append(kept)
        for target in new:
            if target in removed:
                continue
            override = overrides[target]
            replaced.setdefault(target, []).append(part)
            if len(override.targets) == 1 or override.normal not in placed:
                merged.append(override)
                placed.add(override.normal)
    there = {part.normal for part in merged} if bodies.after else set()
    appended: list[Line] = []
    # `del` of what the parent's body neither binds nor names in a call (`register_buffer("mask", …)`) is dropped, as in the corpus.
    unbound = {target for target in removed if re.fullmatch(rf"{bodies.instance}\.\w+", target)} - _bound(
        bodies.theirs
    )
    gone |= unbound - {f"{bodies.instance}.{text}" for text in (_texts_passed(bodies.theirs) if unbound else ())}
    for part in bodies.after:
        rest = part.without_targets(gone) if gone and part.deleted and part not in kept_behind else part
        # A `return` that the parent has too is needed once more behind lines that go behind the parent's.
        is_last = bool(appended) and isinstance(part.node, ast.Return)
        if part in kept_behind or (rest is not None and (is_last or rest.normal not in there)):
            assert rest is not None
            appended.append(rest)
            there.add(rest.normal)
    return _Merged(merged, appended, replaced)


def _bound(lines: Iterable[Line]) -> frozenset[str]:
    """The names and attributes that statements bind, in their blocks too."""
    return frozenset[str]().union(*(part.effects.binds for part in lines))


def _texts_passed(lines: Iterable[Line]) -> Iterator[str]:
    """The texts that calls in some lines are given."""
    calls = (node for line in lines for node in walk(line.node) if isinstance(node, ast.Call))
    given = (one for call in calls for one in (*call.args, *(keyword.value for keyword in call.keywords)))
    yield from (one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str))


def _without_repeated(bodies: Bodies, inherited: Sequence[Line]) -> list[Line]:
    """The lines that the parent does not have word for word; dropped lines that would count twice are reported."""
    after, merge = bodies.after, bodies.merge
    there = {part.normal for part in inherited} if after else set()
    needed = repeated_behind_returns(inherited, after)
    same = (part for part in after if part.normal in there and part not in needed)
    repeated = [part for part in same if counts_twice(part, bodies.instance)]
    dropped = (part for part in repeated if part.normal != merge.settings.last_statement)
    merge.findings.extend(finding_at(part.node, merged_bodies.statement_not_repeated, part.normal) for part in dropped)
    return [part for part in after if part not in repeated]


def _check_replacements(bodies: Bodies, replaced: dict[str, list[Line]]) -> Iterator[ClassFinding]:
    """Report assignments that replace several, or statements of another method."""
    for target, parts in replaced.items():
        override, method = bodies.merge.overrides[target]
        others = [part for part in parts if part.normal != override.normal]
        if method != bodies.name and others:
            yield finding_at(override.node, merged_bodies.several_assignments_replaced, target, method, bodies.name)
        elif len(parts) > 1 and others and target in override.effects.reads:
            yield finding_at(override.node, merged_bodies.assigned_often, bodies.name, target, len(parts))
        elif len(parts) > 1 and others:
            yield finding_at(
                override.node, merged_bodies.several_assignments_replaced, target, bodies.name, bodies.name
            )


def _check_set_up(bodies: Bodies, body: _Merged) -> Iterator[ClassFinding]:
    """Report assignments whose objects the parent's lines below set up, which are written for the parent's own."""
    for target in bodies.attributes(body.replaced):
        override, method = bodies.merge.overrides[target]
        below = body.merged[body.merged.index(override) :] if method == bodies.name else []
        for line in below:
            if line in bodies.of_parent and sets_up(line, target, bodies):
                yield finding_at(override.node, merged_bodies.set_up_below, target, line.normal)
    last = bodies.merge.settings.last_statement
    if bodies.name == "__init__" and any(line.normal == last for line in bodies.theirs):
        for line in body.appended:
            # Published lines change no object within a module there, of which that call sets the weights.
            for path in (one for one in bodies.attributes(line.effects.changes) if one.count(".") > 1):
                yield finding_at(line.node, merged_bodies.set_again_at_end, path, last)


def _check_local_names(bodies: Bodies, body: _Merged) -> Iterator[ClassFinding]:
    """Report local names of the child that lines of the parent read in place of their own, as in the corpus (vivit)."""
    for target, parts in body.replaced.items():
        override, method = bodies.merge.overrides[target]
        if target.isidentifier() and method == bodies.name and any(one.normal != override.normal for one in parts):
            below = body.merged[body.merged.index(override) + 1 :]
            reader = next((one for one in below if one in bodies.of_parent and target in one.effects.reads), None)
            if reader is not None:
                yield finding_at(override.node, merged_bodies.read_by_parent, target, reader.normal, bodies.name)


def _check_unbound(bodies: Bodies) -> Iterator[ClassFinding]:
    """Report local names of the child that the parent's lines read where they may not have given their own a value."""
    own = bodies.parameters.union(*(line.effects.binds for line in bodies.before))
    names = (own & bodies.locals_of_parent) - parameters_of(bodies.parent)
    for name, reader in read_unbound([line.node for line in bodies.theirs] if names else (), names).items():
        binder = next((line.node for line in bodies.before if name in line.effects.binds), bodies.call)
        yield finding_at(binder, merged_bodies.read_by_parent, name, ast.unparse(reader), bodies.name)


def _reach_the_end(bodies: Bodies, merged: list[Line], appended: list[Line]) -> list[Line]:
    """The parent's statements without the `return` at their end, so that appended lines are reached."""
    returns = [node for part in merged for node in returns_in(part.node)]
    if not returns:
        return merged
    last = merged[-1]
    if returns == [last.node] and isinstance(last.node, ast.Return):
        value = last.node.value
        if value is None or isinstance(value, (ast.Name, ast.Constant)):
            return merged[:-1]
        text = BODY_INDENT + last.text.lstrip().removeprefix("return").lstrip(" \t\\\n")
        return [
            *merged[:-1],
            Line(ast.copy_location(ast.Expr(value), last.node), last.with_text(text).spans, last.node),
        ]
    bodies.merge.findings.append(finding_at(appended[0].node, merged_bodies.returns_before, bodies.name))
    return merged


def _moved_last(lines: list[Line], last: str) -> list[Line]:
    """It is moved, not only kept last: lines below it in the parent would run after the weights are initialised.

    Where a line behind it may return, it stays, and runs as often as with inheritance.
    """
    calls = [part for part in lines if part.normal == last]
    if calls and any(any(returns_in(part.node)) for part in lines[lines.index(calls[0]) :]):
        return lines
    return [part for part in lines if part not in calls] + calls[-1:]


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
    under_their_name = {one for one, value in given.items() if _is_named(value, one)} | (names - given.keys())
    lacking = [name for name in parameters_of(parent) if name in found or name not in under_their_name]
    read = frozenset[str]().union(*(part.effects.reads for part in body)) if lacking else ()
    lacking = [name for name in lacking if name in read]
    arguments_read = _arguments_read([part.node for part in body]) if {*lacking} - given.keys() else ()
    taken = {name: given[name] for name in lacking if name in names and name in given}
    bindings = {name: value for name, value in taken.items() if _is_computed(name, given, bodies)}
    ignored = {name: value for name, value in taken.items() if name not in bindings}
    reported = {*ignored}
    for name in (name for name in lacking if name not in taken):
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
    hidden = frozenset[str]().union(*(part.effects.reads for part in lines)) & bindings.keys() - taken.keys()
    findings += [finding_at(statement, calls_of_super.no_value, child.name, name) for name in sorted(hidden)]
    return lines


def _is_computed(name: str, given: Mapping[str, ast.expr], bodies: Bodies) -> bool:
    """Whether an argument gives a name of the child another value, `n = 2 * n`, which only the parent's lines read."""
    others = {one: value for one, value in given.items() if one != name and not _is_named(value, one)}
    read = bindings_of(*others.values()).read_paths
    value = given[name]
    scope = bindings_of(value)
    if not calls_of_super.has_effect(value, bodies.name) or name in read:
        return False
    if name in scope.reads_later or not scope.read_paths.isdisjoint(others):  # `f = lambda x: f(x)` would call itself
        return False
    behind = (one.effects.reads | one.bindings.reads_later for one in bodies.after)
    return name not in frozenset[str]().union(*behind, *(one.bindings.reads_later for one in bodies.before))


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
    return [added_line(text, statement) for text in texts]


def _calls(node: ast.AST) -> bool:
    """Whether an expression contains a call or another operation that may have an effect."""
    changes = (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)
    return any(isinstance(one, changes) for one in walk_until((ast.Lambda, ast.GeneratorExp), node))


def _is_named(value: ast.expr, name: str) -> bool:
    return ast.unparse(value) == name


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
    if any(one not in BINDING for one in decorators_of(parent)):
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
    given |= zip(positional, takewhile(lambda one: not isinstance(one, ast.Starred), arguments))
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
            given[parent.args.kwarg.arg] = ast.copy_location(ast.Call(ast.Name("dict", ast.Load()), [], others), call)
    first, rest = arguments[: len(positional)], arguments[len(positional) :]
    if parent.args.vararg is not None and rest and not any(isinstance(one, ast.Starred) for one in first):
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


_INNER = (ast.stmt, ast.excepthandler, ast.match_case)
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def read_unbound(statements: Iterable[ast.stmt], unbound: frozenset[str]) -> dict[str, ast.stmt]:
    """The names without a value above some statements that these may read so, each with the first statement that does."""
    found: dict[str, ast.stmt] = {}
    for node in statements:
        read = set[str]()
        unbound = _through(node, unbound, read)
        found = dict.fromkeys(sorted(read), node) | found
    return found


def _through(node: ast.stmt, unbound: frozenset[str], read: set[str]) -> frozenset[str]:
    """The names that may have no value below a statement, none if nothing there is reached. Those that it reads join
    `read`.
    """
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or not hasattr(node, "body"):
        scope = bindings_of(node) if not isinstance(node, ast.Match) else bindings_of(node.subject)
    else:
        scope = bindings_of(*(one for one in children(node) if not isinstance(one, _INNER)))
    read |= scope.reads_now & unbound
    bound = unbound - scope.binds

    def run(block: Iterable[ast.stmt], lacking: frozenset[str]) -> frozenset[str]:
        for one in block:
            lacking = _through(one, lacking, read)
        return lacking

    match node:
        case ast.If():
            return run(node.body, bound) | run(node.orelse, bound)
        case ast.For() | ast.AsyncFor() | ast.While():
            run(node.body, bound)
            rest = run(node.orelse, unbound)
            return unbound if any(isinstance(one, ast.Break) for one in walk(node)) else rest
        case ast.With() | ast.AsyncWith():
            return run(node.body, bound)
        case ast.Match():
            cases = (run(one.body, bound - bindings_of(one.pattern).binds) for one in node.cases)
            return bound.union(*cases)
        case ast.Try():
            caught = (run(one.body, unbound - {one.name}) for one in node.handlers)
            done = run(node.orelse, run(node.body, unbound)).union(*caught)
            return run(node.finalbody, unbound) & done
    return frozenset() if isinstance(node, _LEAVING) else bound
