"""Local names of an override and of what it overrides: two sets with inheritance, and one in the merged body."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence, Set

from modular_converter.convert.inherit.class_findings import ClassFinding, local_name_shared, not_mergeable
from modular_converter.convert.inherit.effects import captured_by
from modular_converter.convert.inherit.reaching import History, Order
from modular_converter.convert.inherit.scopes import Function, parameters_of
from modular_converter.convert.inherit.statements import Line


def check_names(
    child: Function, parent: Function, order: Order, merged: Sequence[Line], module_names: Set[str], copied: Set[str]
) -> Iterator[ClassFinding]:
    """The names that a line of the child reads, and that are something else in the merged body.

    A name that only the parent's lines bind may be read: with inheritance it would be undefined.

    Args:
        module_names: what the modular file defines and imports.
        copied: the names that the call unpacks, `**kwargs`: with inheritance the parent's body has a copy.
    """
    own = order.own
    if not own.lines:
        return
    yield from _check_captured(child, order, set(merged))
    history = History(merged, order.instance, order.hidden)
    kept = set(merged)
    theirs = {name for line in order.inherited if line in kept for name in line.effects.binds}
    theirs |= parameters_of(parent) - order.parameters
    for line in own.lines:
        place = history.place(line)
        if place is None:
            continue
        for name in sorted(_names_from_above(line)):
            expected, got = own.binder(name, own.turn[line.origin]), history.binder(name, place)
            if name in copied and any(name in one.effects.changes for one in order.inherited if one in kept):
                if line in order.after:
                    yield local_name_shared(line.node, name, "is what the parent's lines have left of it", child.name)
            elif expected is not None or name in order.parameters:
                yield from _check_own(child, line, name, expected, got, order)
            elif name in theirs and (name in module_names or hasattr(builtins, name)):
                yield not_mergeable(
                    line.node,
                    child.name,
                    f"this line reads the `{name}` of your module, and the parent's lines have a local `{name}`",
                )
            elif got is None and history.binds_from(name, place + 1):
                yield not_mergeable(line.node, child.name, f"this line would stand above the one that binds `{name}`")


def _check_captured(child: Function, order: Order, merged: Set[Line]) -> Iterator[ClassFinding]:
    """The names of inner functions that are the other body's variables too: with inheritance there are two of each.

    A child's assignment that takes the place of the parent's is meant for all that read it.
    """
    inherited = [line for line in order.inherited if line in merged]
    theirs, replaced = set[str](), set[str]()
    for line in order.inherited:
        replaced.update(line.targets)
        theirs.update(line.effects.binds if line in merged else ())
    captured = frozenset[str]().union(*(captured_by(line.node) for line in inherited if _has_function(line)))
    for line in order.own.lines:
        names = captured & line.effects.binds - replaced
        if _has_function(line):
            names |= captured_by(line.node) & theirs & (order.parameters | _bound_by_own(order))
        for name in sorted(names):
            reason = f"an inner function reads `{name}`, to which the parent's lines and yours both assign"
            yield not_mergeable(line.node, child.name, reason, f"Give your `{name}` another name.")


def _has_function(line: Line) -> bool:
    return "lambda" in line.normal or "def " in line.normal


def _bound_by_own(order: Order) -> set[str]:
    return set[str]().union(*(line.effects.binds for line in order.own.lines))


def _names_from_above(line: Line) -> set[str]:
    """The names that a line reads. Those that a compound statement binds too it mostly reads behind its own binding."""
    names = {path for path in line.effects.reads if "." not in path}
    return names - line.effects.binds if hasattr(line.node, "body") else names


def _check_own(
    child: Function, line: Line, name: str, expected: Line | None, got: Line | None, order: Order
) -> Iterator[ClassFinding]:
    """A name that the child's method has itself: as a parameter, or by the line `expected`."""
    if got is expected or (got is not None and expected is not None and order.gives_the_same(got, expected)):
        return
    if got is None or got not in order.inherited:
        yield local_name_shared(line.node, name, "does not have your value yet", child.name)
    elif expected is None or expected in order.after:
        yield local_name_shared(line.node, name, "has the value that the parent's lines give it", child.name)
    else:
        reason = f"the parent's lines assign to a local `{name}` too"
        yield not_mergeable(line.node, child.name, reason, f"Give your `{name}` another name.")
