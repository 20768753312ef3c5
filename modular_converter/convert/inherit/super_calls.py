"""Overrides: a `super()` statement is replaced by the parent's body, into which the child's statements are merged."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from modular_converter.convert.inherit.arguments import bind_arguments
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
    counts_twice,
    deleted_again,
    only_removes,
)
from modular_converter.findings import ClassFinding, finding_at
from modular_converter.model.bindings import Function, parameters_of
from modular_converter.model.overriding import is_super_statement
from modular_converter.rules import merged_bodies


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
    if before and _calls_base_first(bodies) and not _reads_changes(theirs[0], bodies):
        first.append(theirs.pop(0))
    after = _without_repeated(bodies, inherited.lines)
    bodies = replace(bodies, before=[*first, *before], theirs=theirs, after=after)
    body = _merge_behind(bodies)
    merged, appended = body.merged, body.appended
    merge.findings.extend(_check_set_up(bodies, body))
    differing = [*_check_replacements(bodies, body.replaced)] or [
        *_check_local_names(bodies, body),
        *check_names(bodies, [*bodies.before, *merged, *appended], merged, merge.around.module_names),
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
    result = [*bodies.before, *bindings, *merged, *appended]
    return _moved_last(result, merge.settings.last_statement) if name == "__init__" else result


def _calls_base_first(bodies: Bodies) -> bool:
    """Whether the parent's `__init__` begins with a call of its base's: attributes of modules can be set only behind
    it.
    """
    name, theirs = bodies.name, bodies.theirs
    return name == "__init__" and bool(theirs) and is_super_statement(theirs[0].node, name)


def _reads_changes(line: Line, bodies: Bodies) -> bool:
    """Whether a line of the parent reads what the child's lines bind or change, or a parameter that has to be bound.

    The call of a base that sets the same attribute changes it anew.
    """
    attributes = (target.partition(".")[2] for part in bodies.before for target in part.targets if "." in target)
    if any(bodies.merge.around.is_set_above(bodies.name, attribute) for attribute in attributes):
        return True
    changed = (parameters_of(bodies.parent) - bodies.parameters).union(
        *(part.effects.writes | part.effects.objects_changed for part in bodies.before)
    )
    return not line.effects.reads.isdisjoint(changed)


def _removes_too_much(bodies: Bodies, part: Line) -> bool:
    """Whether `del x` means a local name of the child, or `self.x = self.x` an attribute that nothing else sets."""
    own = bodies.parameters.union(*(line.effects.binds for line in bodies.before))
    if any(name.isidentifier() and name in own for name in part.deleted):
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
        more = misplaced(bodies, [*bodies.before, *body.merged, *body.appended]) - kept_behind
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
    gone |= _deleted_elsewhere(removed, bodies.theirs, bodies.instance)
    for part in bodies.after:
        rest = part.without_targets(gone) if gone and part.deleted and part not in kept_behind else part
        # A `return` that the parent has too is needed once more behind lines that go behind the parent's.
        is_last = bool(appended) and isinstance(part.node, ast.Return)
        if part in kept_behind or (rest is not None and (is_last or rest.normal not in there)):
            assert rest is not None
            appended.append(rest)
            there.add(rest.normal)
    return _Merged(merged, appended, replaced)


def _deleted_elsewhere(removed: set[str], inherited: Sequence[Line], instance: str) -> set[str]:
    """The `self.x` of `del` statements that the parent's body does not bind: they are dropped, as in the corpus."""
    return {target for target in removed if re.fullmatch(rf"{instance}\.\w+", target)} - _bound(inherited)


def _bound(lines: Iterable[Line]) -> frozenset[str]:
    """The names and attributes that statements bind, in their blocks too."""
    return frozenset[str]().union(*(part.effects.binds for part in lines))


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


def _check_local_names(bodies: Bodies, body: _Merged) -> Iterator[ClassFinding]:
    """Report local names of the child that lines of the parent read in place of their own, as in the corpus (vivit)."""
    for target, parts in body.replaced.items():
        override, method = bodies.merge.overrides[target]
        if target.isidentifier() and method == bodies.name and any(one.normal != override.normal for one in parts):
            below = body.merged[body.merged.index(override) + 1 :]
            reader = next((one for one in below if one in bodies.of_parent and target in one.effects.reads), None)
            if reader is not None:
                yield finding_at(override.node, merged_bodies.read_by_parent, target, reader.normal, bodies.name)


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
