"""The assignments that reach a statement: an override replaces the parent's line only where it means the same there."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence

from modular_converter.convert.inherit.history import History, Order, local_objects
from modular_converter.convert.inherit.statements import Line, only_removes
from modular_converter.model.bindings import own_nodes


def misplaced(order: Order, merged: Sequence[Line]) -> set[Line]:
    """The child's lines behind `super()` that have to stay there.

    If merged as proposed, an attribute would have another value than with inheritance, where such a line reads it or at
    the end. Parent's lines that read an override in place of their own assignment are intended.

    Args:
        merged: the proposed body.
    """
    if not order.after:
        return set()
    if order.is_too_large:
        return set(order.after)
    written, history = order.written, History(merged, order.instance, order.hidden)
    deleted = {target: line for line in order.after for target in line.deleted}
    found = _needed_above(order, deleted) | _behind_returns(order, merged) | {*_above_changes(order, history)}
    found |= {*_above_own_returns(order, history)} | {*_set_below(order, history)}
    found |= {*_above_unknown_changes(order, history)}
    found |= {line for line in order.after if order.hidden.runs_setter(line.effects.binds)}
    found |= {*_set_before_removal(order)} if deleted else set()
    for line in order.after:
        place = history.place(line)
        if place is None:
            continue
        for path in order.attributes(_read_by(line, order)) if not only_removes(line) else ():
            if path not in deleted:
                ends = written.turn[line.origin], place
                found |= _differing(order, history, path, ends, {line})
        if any(_is_too_high(name, line, place, order, history) for name in line.effects.reads):
            found.add(line)
    changed = {path for line in order.after if not only_removes(line) for path in line.effects.binds}
    for path in order.attributes(changed):
        found |= _differing(order, history, path, (len(written.lines), len(merged)), set())
    return found.union(_too_early_removals(order, history, deleted)).intersection(order.after)


def _read_by(line: Line, order: Order) -> frozenset[str]:
    """The paths that a line of the child reads, also by the methods that it uses.

    If it passes the instance to other code, these are all attributes that the parent's lines bind.
    """
    reads = line.effects.reads | order.hidden.of(line.effects).reads
    return reads | order.bound_by_parent if line in order.readers_of_all else reads


def _behind_returns(order: Order, merged: Sequence[Line]) -> set[Line]:
    """The child's lines that set attributes, and that a `return` within a line of the parent would skip.

    Local names are left out, since the corpus replaces them behind such a `return` (vivit).
    """
    lines = itertools.dropwhile(lambda line: line not in order.of_parent or not any(returns_in(line.node)), merged)
    return {line for line in {*lines}.intersection(order.after) if order.attributes(line.effects.writes)}


def repeated_behind_returns(inherited: Sequence[Line], after: Sequence[Line]) -> set[Line]:
    """The child's lines that the parent has too, but behind a `return` within a block, which would skip its line."""
    if {line.normal for line in inherited}.isdisjoint(line.normal for line in after):
        return set()
    lines = itertools.dropwhile(lambda line: not any(returns_in(line.node)), inherited)
    skipped = {line.normal for line in itertools.islice(lines, 1, None)}
    return {line for line in after if line.normal in skipped and not isinstance(line.node, ast.Return)}


def _above_own_returns(order: Order, history: History) -> Iterator[Line]:
    """The child's lines that would stand above a `return` of the child's own that may skip them."""
    first: int | None = None
    for line in order.after:
        place = history.place(line)
        if first is not None and (line.deleted if place is None else place < first):
            yield line
        if first is None and any(returns_in(line.node)):
            first = place


def _set_below(order: Order, history: History) -> Iterator[Line]:
    """The child's lines whose attributes a line of the parent below may set by a name that it does not say."""
    last = -1
    for place, line in enumerate(history.lines):
        if line in order.of_parent and order.hidden.may_set_any(line.node, line.effects):
            last = place
    for line in order.after if last >= 0 else ():
        at = history.place(line)
        if at is not None and at < last and order.attributes(line.effects.binds):
            yield line


def _above_changes(order: Order, history: History) -> Iterator[Line]:
    """The child's lines that would stand above another line that changes in place an object that they read."""
    last: dict[str, int] = {}
    held_by: dict[str, frozenset[str]] = {}
    for place, line in enumerate(history.lines):
        if line in order.of_parent:
            last.update(dict.fromkeys(line.effects.objects_changed - {order.instance}, place))
    for line in order.after:
        at = history.place(line)
        if at is not None:
            if any(at < last.get(path, at) for path in line.effects.reads):
                yield line
            changed = line.effects.objects_changed - {order.instance}
            for path in changed.union(*(held_by.get(name, ()) for name in changed)):
                last[path] = max(at, last.get(path, at))
            held_by.update(local_objects(line, order.instance))


def _above_unknown_changes(order: Order, history: History) -> Iterator[Line]:
    """The child's lines that would stand above another one of the child that may set any attribute before them."""
    last = -1
    for line in order.after:
        at = history.place(line)
        if at is not None:
            effects = line.effects
            if at < last and order.attributes(effects.binds | effects.reads | order.hidden.of(effects).reads):
                yield line
            if order.hidden.may_change_any(line.node, effects):
                last = max(at, last)


def _needed_above(order: Order, deleted: Mapping[str, Line]) -> set[Line]:
    """The `del` statements below lines of the child that read the parent's value, and those lines."""
    turn = order.written.turn
    own = {path for line in order.before for path in line.effects.binds}  # these stay (bamba)
    found: set[Line] = set()
    for line in order.after if deleted else ():
        for path in line.effects.reads & (deleted.keys() - own) if not only_removes(line) else ():
            is_above = turn[line.origin] < turn[deleted[path].origin]
            if is_above and order.of_parent.intersection(order.written.writers(path, turn[line.origin])):
                found |= {line, deleted[path]}
    return found


def _is_too_high(name: str, line: Line, place: int, order: Order, history: History) -> bool:
    """Whether a line would stand above every binding of a name that the child's lines above it bind."""
    return (
        name not in order.parameters
        and history.binder(name, place) is None
        and order.own.binder(name, order.own.turn[line.origin]) is not None
    )


def _differing(order: Order, history: History, path: str, ends: tuple[int, int], reader: set[Line]) -> set[Line]:
    """The lines by which a value differs from inheritance; none if the same lines decide it."""
    expected, got = order.written.writers(path, ends[0]), history.writers(path, ends[1])
    if expected and expected[-1].deleted:  # an attribute that a child sets above and deletes below stays (bamba)
        expected = expected[:-1]
        got = [line for line in got if line not in order.before and path in line.effects.binds]
    if got and got[-1] in order.after and expected[-1:] == got[-1:]:
        got = [line for line in got if line not in order.of_parent or not sets_up(line, path, order)]
    if _distinct(expected) == _distinct(got):
        return set()
    return {*expected, *got} | reader


def sets_up(line: Line, path: str, order: Order) -> bool:
    """Whether a line of the parent sets up the object of an attribute, which may be one that the child puts there: the
    corpus has `self.embed_positions.requires_grad_(False)` (voxtral), and a finding names the line.
    """
    return order.hidden.only_sets_up(line.node, line.effects, path)


def _distinct(lines: Sequence[Line]) -> list[str]:
    """The statements, consecutive equal ones only once, unless `counts_twice` says that each counts."""
    return [text for text, _ in itertools.groupby(line.original for line in lines)]


def _too_early_removals(order: Order, history: History, deleted: Mapping[str, Line]) -> Iterator[Line]:
    """The `del` statements whose targets the parent's remaining lines need."""
    inherited = {line.origin for line in order.inherited} if deleted else set()
    for place, line in enumerate(history.lines if deleted else ()):
        for path in line.effects.reads & deleted.keys() if line.origin in inherited else ():
            above = order.written.turn[line.origin]
            if order.written.writers(path, above) and not history.writers(path, place):
                yield deleted[path]


def _set_before_removal(order: Order) -> Iterator[Line]:
    """The `del` statements of attributes that lines above may set again: in a block, by a method, by a computed name; of
    the parent's lines only by a method. A plain assignment of the child above is left out, since the corpus has one
    (bamba), and a finding reports it.
    """
    bound = frozenset[str]().union(*(order.hidden.of(line.effects).binds for line in order.inherited))
    is_any = False
    for line in (*order.before, *order.after):
        if line.deleted:
            if is_any or not bound.isdisjoint(line.deleted):
                yield line
            continue
        bound |= line.effects.binds.union(order.hidden.of(line.effects).binds).difference(line.targets)
        is_any = is_any or order.hidden.may_set_any(line.node, line.effects)


def returns_in(node: ast.stmt) -> Iterator[ast.Return]:
    """The `return` statements within a statement, but for those of inner functions."""
    holder = ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), [node], [])
    return (part for part in own_nodes(holder) if isinstance(part, ast.Return))
