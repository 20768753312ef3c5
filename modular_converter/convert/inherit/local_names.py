"""Local names of an override and of the parent's method: two scopes with inheritance, one in the merged body."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence, Set

from modular_converter.convert.inherit.class_findings import ClassFinding, finding_at, not_mergeable
from modular_converter.convert.inherit.history import History, Order
from modular_converter.convert.inherit.statements import Line
from modular_converter.model.bindings import Function, bindings_in, bindings_of
from modular_converter.model.nodes import walk
from modular_converter.rules import shared_local_name


def check_names(
    child: Function, parent: Function, order: Order, merged: Sequence[Line], module_names: Set[str], copied: Set[str]
) -> Iterator[ClassFinding]:
    """The names that a line of the child reads and that have another value in the merged body. A name that only the
    parent's lines bind may be read: with inheritance it would be undefined.

    Args:
        module_names: what the modular file defines and imports.
        copied: the names that the call unpacks, `**kwargs`: with inheritance the parent's body has a copy.
    """
    own = order.own
    if not own.lines:
        return
    yield from _check_captured(child, order, merged)
    history = History(merged, order.instance, order.hidden)
    kept = set(merged)
    theirs = _local(parent, [line for line in order.inherited if line in kept]) - order.parameters
    for line in own.lines:
        place = history.place(line)
        if place is None:
            continue
        for name in sorted(_names_from_above(line)):
            is_changed = name in copied and name in line.effects.changes and line in order.after
            if is_changed and any(_keeps(one.node, name) for one in order.inherited if one in kept):
                state = "is the object that the parent's lines keep"
                yield finding_at(line.node, shared_local_name.diagnose, name, state, child.name)
            expected, got = own.binder(name, own.turn[line.origin]), history.binder(name, place)
            if name in copied and any(name in one.effects.changes for one in order.inherited if one in kept):
                if line in order.after or _keeps(line.node, name):
                    state = "has the value that the parent's lines leave"
                    yield finding_at(line.node, shared_local_name.diagnose, name, state, child.name)
            elif expected is not None or name in order.parameters:
                yield from _check_own(child, line, name, expected, got, order)
            elif name in theirs and (name in module_names or hasattr(builtins, name)):
                yield not_mergeable(
                    line.node,
                    child.name,
                    f"this line reads the `{name}` of your module, and the parent's lines have a local `{name}`",
                )
            elif got is None and history.binds_from(name, place + 1):
                yield not_mergeable(line.node, child.name, f"this line would stand above the line that binds `{name}`")


def _check_captured(child: Function, order: Order, merged: Sequence[Line]) -> Iterator[ClassFinding]:
    """Inner functions that would see another value, since lines of the other body below assign to the same name.

    A child's assignment that takes the place of the parent's is meant for all that read it.
    """
    own = {line.origin for line in order.own.lines}
    replaced = {target for line in order.inherited for target in line.targets}
    binders: dict[bool, dict[str, Line]] = {True: {}, False: {}}  # the next line below, of the child and of the parent
    found: list[ClassFinding] = []
    for line in reversed(merged):
        is_own = line.origin in own
        others = binders[not is_own]
        names = line.bindings.reads_later & others.keys() if others else frozenset()
        for name in sorted(names if is_own else names - replaced, reverse=True):
            reason = f"an inner function reads `{name}`, and both the parent's lines and yours assign to it"
            node = line.node if is_own else others[name].node
            found.append(not_mergeable(node, child.name, reason, f"Give your `{name}` another name."))
        binders[is_own].update(dict.fromkeys(line.effects.binds, line))
    yield from reversed(found)


def _keeps(node: ast.AST, name: str) -> bool:
    """Whether an object behind a name may be in use after a statement: assigned, passed on, or put into a container."""
    for one in walk(node):
        values: list[ast.expr | None] = []
        if isinstance(one, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            values = [one.value]
        elif isinstance(one, ast.Call):
            values = [*one.args, *(keyword.value for keyword in one.keywords if keyword.arg)]
        elif isinstance(one, (ast.List, ast.Tuple, ast.Set)):
            values = [*one.elts]
        elif isinstance(one, ast.Dict):
            values = [value for key, value in zip(one.keys, one.values, strict=True) if key is not None]
        if any(isinstance(value, ast.Name) and value.id == name for value in values):
            return True
    return False


def _names_from_above(line: Line) -> set[str]:
    """The names that a line reads, except those that a compound statement itself binds, mostly before it reads them."""
    names = {path for path in line.effects.reads if "." not in path}
    return names - line.effects.binds if hasattr(line.node, "body") else names


def _check_own(
    child: Function, line: Line, name: str, expected: Line | None, got: Line | None, order: Order
) -> Iterator[ClassFinding]:
    """A name that the child's method has itself: as a parameter, or by the line `expected`."""
    if got is expected or (got is not None and expected is not None and order.gives_the_same(got, expected)):
        return
    if got is None or got not in order.inherited:
        yield finding_at(line.node, shared_local_name.diagnose, name, "does not have your value yet", child.name)
    elif expected is None or expected in order.after:
        state = "has the value that the parent's lines give it"
        yield finding_at(line.node, shared_local_name.diagnose, name, state, child.name)
    else:
        reason = f"the parent's lines assign to a local `{name}` too"
        yield not_mergeable(line.node, child.name, reason, f"Give your `{name}` another name.")


def _local(function: Function, lines: Sequence[Line]) -> frozenset[str]:
    """The local names of a method, as far as some of its lines bind them; also those with an annotation alone."""
    scope = bindings_in(function)
    bound = bindings_of(*(line.node for line in lines)).local
    return bound.union(scope.parameters, scope.declares) - scope.declared_global
