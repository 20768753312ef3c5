"""The proof of a merged method: its lines as inheritance executes them, and as one body has them, over the same bindings.

Each line of the child has to read what it reads with inheritance: the same lines decide the value of each path, and of
each attribute at the end. Lines of the parent may read an override in place of their own assignment, since that is what
an override is for, but they have to find a value.
"""

from __future__ import annotations

import ast
import builtins
import heapq
import itertools
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modular_converter.convert.inherit.bases import ClassMerge
from modular_converter.convert.inherit.statements import HiddenEffects, Line, only_removes
from modular_converter.findings import ClassFinding, finding_at
from modular_converter.model.bindings import Function, bindings_in, bindings_of, covers, is_generator, own_nodes
from modular_converter.model.nodes import dotted, method_call, walk
from modular_converter.model.overriding import first_parameter, mappings
from modular_converter.rules import merged_bodies


FARTHEST = 50
"""The most writers of one path that are compared, from the last one back, and the most lines that may read any
attribute.

Time stays proportional to the input.
"""
RETURN = "return"
"""Stands for whether the lines below are reached: written by lines that may return."""
ANY = ".*"
"""Behind the name of the instance: any of its attributes, by a name that the line does not say."""
OBJECT = "."
"""Behind a path: its object got another attribute or item, which another path may be read from."""


class Execution:
    """Lines in some order, and those that write a path above a place."""

    def __init__(self, lines: Sequence[Line], instance: str, writes: Callable[[Line], Collection[str]]) -> None:
        """`writes` gives the paths that a line writes, by whatever means."""
        self.lines = lines
        self.turn = {line.origin: place for place, line in enumerate(lines)}
        self._by_text = {line.original: place for place, line in enumerate(lines)}
        self._any = f"{instance}{ANY}"
        self._writers: dict[str, list[int]] = {}
        held_by: dict[str, frozenset[str]] = {}
        for place, line in enumerate(lines):
            held = (held_by[name] for name in line.effects.objects_changed if name in held_by) if held_by else ()
            for path in frozenset(writes(line)).union(*held):
                self._writers.setdefault(path, []).append(place)
            attributes = frozenset(path for path in line.effects.reads if path.startswith(f"{instance}."))
            held_by.update((name, attributes) for name in line.effects.binds if "." not in name)

    def place(self, line: Line) -> int | None:
        """The position of a line; for a line that is not repeated, the position of an equal line."""
        return self.turn.get(line.origin, self._by_text.get(line.original))

    def writers(self, path: str, end: int, setters: Collection[str] = ()) -> list[Line]:
        """The lines that decide the value of a path above a place, the last one first. A deletion is the same as no
        value; an attribute with a setter has an effect each time.
        """
        found: list[Line] = []
        for place in itertools.islice(self._places(path, end), FARTHEST):
            line = self.lines[place]
            if any(covers(target, path) for target in line.deleted):
                break
            found.append(line)
            if any(covers(target, path) and target not in setters for target in line.targets):
                break
        return found

    def binder(self, name: str, end: int) -> Line | None:
        """The last line above a place that binds a name."""
        places = self._writers.get(name, [])
        found = (self.lines[place] for place in reversed(places[: bisect_left(places, end)]))
        return next((line for line in found if name in line.effects.binds), None)

    def binds_from(self, name: str, start: int) -> bool:
        """Whether a line at or below a place binds a name."""
        return any(place >= start and name in self.lines[place].effects.binds for place in self._writers.get(name, ()))

    def _places(self, path: str, end: int) -> Iterator[int]:
        """The places of the lines that write a path or an object that holds it, the last one first."""
        names = path.split(".")
        paths = [".".join(names[:length]) for length in range(1, len(names) + 1)] + [f"{path}{OBJECT}"]
        if len(names) > 1 and self._any in self._writers and self._any.startswith(f"{names[0]}."):
            paths.append(self._any)
        each = [
            reversed(places[: bisect_left(places, end)][-FARTHEST:])
            for one in paths
            if (places := self._writers.get(one))
        ]
        return (place for place, _ in itertools.groupby(heapq.merge(*each, reverse=True)))


@dataclass(frozen=True)
class Bodies:
    """The lines of an override and of the parent's method, as inheritance executes them."""

    merge: ClassMerge
    child: Function
    parent: Function
    parameters: frozenset[str]
    """The parameters of the merged method."""
    before: Sequence[Line]
    """The child's lines above its `super()` statement."""
    call: ast.stmt
    """The statement."""
    theirs: Sequence[Line]
    """The parent's lines."""
    after: Sequence[Line]
    """The child's lines behind its `super()` statement."""
    first: Sequence[Line] = ()
    """The parent's call of its base, where it runs above the child's lines."""
    _set: dict[Line, frozenset[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.child.name

    @cached_property
    def instance(self) -> str:
        """See `first_parameter`."""
        return first_parameter(self.child, self.parent, self.merge.around.added)

    @cached_property
    def hidden(self) -> HiddenEffects:
        """What the other methods do."""
        methods = {name: some for name, some in self.merge.methods.items() if name != self.name}
        return HiddenEffects(methods, self.instance, is_init=self.name == "__init__")

    @cached_property
    def set_elsewhere(self) -> frozenset[str]:
        """The attributes that may have a value before this method runs, since another method sets them."""
        return frozenset() if self.name == "__init__" else self.hidden.of_all.binds

    @cached_property
    def copied(self) -> frozenset[str]:
        """The names that the call unpacks, `**kwargs`: the parent's body has a copy."""
        call = method_call(self.call, self.name)
        return frozenset(one.id for one in mappings(call) if isinstance(one, ast.Name)) if call else frozenset()

    @cached_property
    def own(self) -> Sequence[Line]:
        """The child's lines."""
        return (*self.before, *self.after)

    @cached_property
    def of_parent(self) -> frozenset[Line]:
        """The parent's lines."""
        return frozenset((*self.first, *self.theirs))

    @property
    def above(self) -> Sequence[Line]:
        """The lines above the parent's body."""
        return (*self.first, *self.before)

    @cached_property
    def inherited(self) -> Execution:
        """All lines in order. For the child's lines, local names and returns of the parent's do not count."""
        return Execution([*self.above, *self.theirs, *self.after], self.instance, self._writes_for_child)

    @cached_property
    def run(self) -> Execution:
        """All lines in order, with all that they write."""
        return self.flat([*self.above, *self.theirs, *self.after])

    def flat(self, lines: Sequence[Line]) -> Execution:
        """The lines of one body."""
        return Execution(lines, self.instance, self.writes)

    @cached_property
    def locals_of_parent(self) -> frozenset[str]:
        """The local names of the parent's method."""
        scope = bindings_in(self.parent)
        return scope.local.union(scope.parameters) - scope.declared_global

    @cached_property
    def deleted(self) -> dict[str, Line]:
        """The targets of the child's `del` statements behind its call."""
        return {target: line for line in self.after for target in line.deleted}

    @cached_property
    def removed(self) -> frozenset[str]:
        """The attributes whose assignments in the parent are removed: by `del self.x`, or `self.x = self.x`."""
        return frozenset(path for line in self.after if only_removes(line) for path in line.targets).union(
            self.deleted
        )

    @cached_property
    def readers_of_all(self) -> frozenset[Line]:
        """The child's lines behind its call that may read any attribute."""
        return frozenset(line for line in self.after if self.hidden.may_read_any(line.node, line.effects))

    @cached_property
    def are_too_large(self) -> bool:
        """Whether there is too much to compare: then the child's lines stay behind the parent's."""
        effects = (line.effects for line in (*self.own, *self.theirs))
        return len(self.readers_of_all) > FARTHEST or self.hidden.are_too_many(effects)

    def attributes(self, paths: Collection[str]) -> list[str]:
        """The attributes of the instance among some paths."""
        return sorted(path for path in paths if path.startswith(f"{self.instance}."))

    @cached_property
    def setters(self) -> frozenset[str]:
        """The attributes that the child sets, and for which the class runs a method."""
        paths = frozenset[str]().union(*(line.effects.binds for line in self.own))
        return frozenset(path for path in paths if self.hidden.runs_setter((path,)))

    def reads(self, line: Line) -> frozenset[str]:
        """The paths that a line of the child reads, also by methods; all attributes if it gives the instance away."""
        names = line.effects.reads
        if hasattr(line.node, "body"):  # the names that it binds itself, mostly before it reads them
            names = names - {name for name in line.effects.binds if "." not in name}
        found = names | self.hidden.of(line.effects).reads
        return found.union(*(other.effects.binds for other in self.theirs)) if line in self.readers_of_all else found

    def sets(self, line: Line) -> frozenset[str]:
        """The paths to which a line gives another value, also by methods and bases."""
        if line not in self._set:
            effects = line.effects
            found = {*effects.binds, *self.hidden.of(effects).binds}
            if "super" in effects.reads:
                found.update(self._set_by_bases(line))
            is_unknown = self.hidden.may_set_any if line in self.of_parent else self.hidden.may_change_any
            if is_unknown(line.node, effects):
                found.add(f"{self.instance}{ANY}")
            self._set[line] = frozenset(found)
        return self._set[line]

    def writes(self, line: Line) -> frozenset[str]:
        """The paths that a line sets, and those whose objects it changes."""
        changed = line.effects.changes | self.hidden.of(line.effects).changes
        objects = () if line.deleted else line.effects.objects_changed - {self.instance}
        reached = (RETURN,) if any(returns_in(line.node)) else ()
        return self.sets(line).union(changed - {self.instance}, (f"{path}{OBJECT}" for path in objects), reached)

    def _writes_for_child(self, line: Line) -> Collection[str]:
        if line not in self.of_parent:
            return self.writes(line)
        unseen = {RETURN, *(self.locals_of_parent - self.parameters), *self.copied}
        plain = {name for name in line.effects.binds if "." not in name}
        return [path for path in self.writes(line) - plain if path.partition(".")[0] not in unseen]

    def _set_by_bases(self, line: Line) -> Iterator[str]:
        """The attributes that the child sets behind its call, and a base by a call on `super()`. If the parent's lines
        above it read one, the override is meant for them (lasr's tokenizer in 5.2.0).
        """
        if line in self.of_parent:
            above = itertools.takewhile(lambda other: other is not line, self.theirs)
            read = frozenset[str]().union(*(other.effects.reads for other in above))
            for path in {path for one in self.after for path in (*one.targets, *one.deleted)} - read:
                if path.startswith(f"{self.instance}.") and self.merge.around.is_set_above(
                    self.name, path.partition(".")[2]
                ):
                    yield path


def misplaced(bodies: Bodies, lines: Sequence[Line]) -> set[Line]:
    """The child's lines behind its call that have to stay there, since one body with these lines would differ."""
    if not bodies.after:
        return set()
    if bodies.are_too_large:
        return set(bodies.after)
    flat, found = bodies.flat(lines), set[Line]()
    for line in bodies.after:
        place = flat.place(line)
        found |= _unreached(bodies, flat, line, place)
        if place is not None:
            for path in bodies.reads(line) if not only_removes(line) else ():
                found |= _read_otherwise(bodies, flat, path, line, place)
    ends = len(bodies.inherited.lines), len(flat.lines)
    changed = {path for line in bodies.after for path in line.effects.binds}
    for path in bodies.attributes(changed):
        found |= _differing(bodies, flat, path, ends)
    for line in (*bodies.theirs, *bodies.after) if bodies.deleted else ():
        place = flat.place(line)
        is_theirs = line in bodies.of_parent
        needed = line.effects.reads | bodies.hidden.of(line.effects).reads if is_theirs else line.deleted
        for path in bodies.deleted.keys() & needed if place is not None else ():
            if bodies.inherited.writers(path, bodies.inherited.turn[line.origin]) and not flat.writers(
                path, place or 0
            ):
                found.update(one for one in bodies.after if path in (one.deleted or one.targets))
    return found.intersection(bodies.after)


def _read_otherwise(bodies: Bodies, flat: Execution, path: str, line: Line, place: int) -> set[Line]:
    """The lines that give a line of the child another value of a path that it reads.

    A local name may have the parent's value, since the corpus has that (vivit), and a finding names the line.
    """
    turn = bodies.inherited.turn[line.origin]
    if not path.startswith(f"{bodies.instance}."):
        is_unset = path not in bodies.parameters and flat.binder(path, place) is None
        wanted, found = (
            [one for one in run.writers(path, end) if path not in one.effects.binds]
            for run, end in ((bodies.inherited, turn), (flat, place))
        )
        if {one.original for one in wanted} - {one.original for one in found}:
            return {line, *wanted}
        return {line} if is_unset and bodies.inherited.binder(path, turn) is not None else set()
    if path in bodies.deleted:  # of an attribute that a child sets above and deletes below, the parent's stays (bamba)
        is_above = turn < bodies.inherited.turn[bodies.deleted[path].origin]
        if is_above and any(path in one.effects.binds for one in bodies.before):
            return set()
    return _differing(bodies, flat, path, (turn, place), line)


def _unreached(bodies: Bodies, flat: Execution, line: Line, place: int | None) -> set[Line]:
    """A line that other `return` statements would skip than with inheritance. Local names behind a `return` of the parent
    are left out, since the corpus replaces them there (vivit).
    """
    wanted = bodies.inherited.writers(RETURN, bodies.inherited.turn[line.origin])
    found = flat.writers(RETURN, place) if place is not None else [] if line.deleted else wanted
    if not bodies.attributes(line.effects.writes):
        found = [one for one in found if one not in bodies.of_parent]
    return {line} if _distinct(wanted) != _distinct(found) else set()


def _differing(
    bodies: Bodies, flat: Execution, path: str, ends: tuple[int, int], reader: Line | None = None
) -> set[Line]:
    """The lines by which a value differs from inheritance; none if the same lines decide it."""
    wanted = bodies.inherited.writers(path, ends[0], bodies.setters)
    found = flat.writers(path, ends[1], bodies.setters)
    if not wanted or (reader is None and path in bodies.removed and only_removes(wanted[0])):
        anything, wanted = f"{bodies.instance}{ANY}", []
        found = [line for line in found if not (bodies.sets(line).isdisjoint((path, anything)) or only_removes(line))]
        found = [line for line in found if line not in bodies.before or path not in line.targets]  # this stays (bamba)
    if found and found[-1] in bodies.after and wanted[-1:] == found[-1:]:
        found = [line for line in found if line not in bodies.of_parent or not sets_up(line, path, bodies)]
    if _distinct(wanted) == _distinct(found):
        return set()
    removing = (line for line in bodies.after if path in (line.deleted or line.targets))
    return {*wanted, *found, *removing} | ({reader} if reader else set())


def sets_up(line: Line, path: str, bodies: Bodies) -> bool:
    """Whether a line of the parent sets up the object of an attribute, which may be one that the child puts there: the
    corpus has `self.embed_positions.requires_grad_(False)` (voxtral) and, in releases before 5.3,
    `self._tokenizer.decoder = …` (lasr), and a finding names the line.
    """
    return bodies.hidden.only_sets_up(line.node, line.effects, path)


def _distinct(lines: Sequence[Line]) -> list[str]:
    """The statements, consecutive equal ones only once, unless `counts_twice` says that each counts."""
    return [text for text, _ in itertools.groupby(line.original for line in lines)]


def returns_in(node: ast.stmt) -> Iterator[ast.Return]:
    """The `return` statements within a statement, but for those of inner functions."""
    holder = ast.FunctionDef("", ast.arguments([], [], None, [], [], None, []), [node], [])
    return (part for part in own_nodes(holder) if isinstance(part, ast.Return))


def repeated_behind_returns(inherited: Sequence[Line], after: Sequence[Line]) -> set[Line]:
    """The child's lines that the parent has too, but behind a `return` within a block, which would skip its line."""
    if {line.normal for line in inherited}.isdisjoint(line.normal for line in after):
        return set()
    lines = itertools.dropwhile(lambda line: not any(returns_in(line.node)), inherited)
    skipped = {line.normal for line in itertools.islice(lines, 1, None)}
    return {line for line in after if line.normal in skipped and not isinstance(line.node, ast.Return)}


# Names: two scopes with inheritance, one in the merged body.


def check_names(
    bodies: Bodies, lines: Sequence[Line], kept: Sequence[Line], module_names: Collection[str]
) -> Iterator[ClassFinding]:
    """The names that a line reads and that have another value or meaning in the merged body. A name that only the parent's
    lines bind may be read by the child's: with inheritance it would be undefined.

    Args:
        lines: the merged body.
        kept: the parent's lines in it.
        module_names: what the modular file defines and imports.
    """
    if not bodies.own:
        return
    yield from _check_captured(bodies, lines)
    flat, inherited = bodies.flat(lines), bodies.inherited
    bound = bindings_of(*(line.node for line in kept if line in bodies.of_parent)).local
    theirs = bound.union(bindings_in(bodies.parent).declares, bindings_in(bodies.parent).parameters)
    theirs = theirs - bindings_in(bodies.parent).declared_global - bodies.parameters
    for line in bodies.own:
        place = flat.place(line)
        for name in sorted(path for path in bodies.reads(line) if "." not in path) if place is not None else ():
            assert place is not None
            wanted, found = inherited.binder(name, inherited.turn[line.origin]), flat.binder(name, place)
            if state := _state_of_copy(bodies, line, name, kept):
                yield finding_at(line.node, merged_bodies.shared_local_name, name, state, bodies.name)
            elif wanted is not None or name in bodies.parameters:
                yield from _check_own(bodies, line, name, wanted, found)
            elif name in theirs and (name in module_names or hasattr(builtins, name)):
                yield finding_at(line.node, merged_bodies.hides_module, bodies.name, name)
            elif found is None and flat.binds_from(name, place + 1):
                yield finding_at(line.node, merged_bodies.bound_below, bodies.name, name)


def _check_own(
    bodies: Bodies, line: Line, name: str, wanted: Line | None, found: Line | None
) -> Iterator[ClassFinding]:
    """A name that the child's method has itself: as a parameter, or by the line `wanted`."""
    if found is wanted or (found is not None and wanted is not None and _give_the_same(bodies, found, wanted)):
        return
    method = bodies.name
    if found is None or found not in bodies.of_parent:
        yield finding_at(line.node, merged_bodies.shared_local_name, name, "does not have your value yet", method)
    elif wanted is None or wanted in bodies.after:
        state = "has the value that the parent's lines give it"
        yield finding_at(line.node, merged_bodies.shared_local_name, name, state, method)
    else:
        yield finding_at(line.node, merged_bodies.assigned_by_both, method, name)


def _give_the_same(bodies: Bodies, one: Line, other: Line) -> bool:
    """Whether two statements of one text read the same values, as inheritance executes them."""
    run = bodies.run
    ends = run.turn[one.origin], run.turn[other.origin]
    same = (run.writers(path, ends[0]) == run.writers(path, ends[1]) for path in one.effects.reads)
    return one.original == other.original and all(same)


def _state_of_copy(bodies: Bodies, line: Line, name: str, kept: Sequence[Line]) -> str:
    """How a mapping that the call unpacks differs, of which the parent's body has a copy with inheritance; "" if not."""
    if name not in bodies.copied:
        return ""
    theirs = [one for one in kept if one in bodies.of_parent]
    if name in line.effects.changes and line in bodies.after and any(_keeps(one.node, name) for one in theirs):
        return "is the object that the parent's lines keep"
    is_later = line in bodies.after or _keeps(line.node, name)
    is_changed = is_later and any(name in one.effects.changes for one in theirs)
    return "has the value that the parent's lines leave" if is_changed else ""


def _check_captured(bodies: Bodies, lines: Sequence[Line]) -> Iterator[ClassFinding]:
    """Inner functions that would see another value, since lines of the other body below assign to the same name.

    A child's assignment that takes the place of the parent's is meant for all that read it.
    """
    own = {line.origin for line in bodies.own}
    replaced = {target for line in bodies.theirs for target in line.targets}
    binders: dict[bool, dict[str, Line]] = {True: {}, False: {}}  # the next line below, of the child and of the parent
    found: list[ClassFinding] = []
    for line in reversed(lines):
        is_own = line.origin in own
        others = binders[not is_own]
        names = line.bindings.reads_later & others.keys() if others else frozenset()
        for name in sorted(names if is_own else names - replaced, reverse=True):
            node = line.node if is_own else others[name].node
            found.append(finding_at(node, merged_bodies.captured, bodies.name, name))
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


def check_scopes(bodies: Bodies, kept: Sequence[Line]) -> Iterator[ClassFinding]:
    """Names that the lines of one method read from their module, and that the other method binds to something else; and
    calls that see the names of the method around them: a merged method has those of both bodies.

    Args:
        kept: the parent's lines in the merged body.
    """
    mine, theirs = bindings_in(bodies.child), bindings_in(bodies.parent)
    used = bindings_of(*(line.node for line in kept))
    for name in sorted(mine.local & theirs.module_names & used.module_names):
        yield finding_at(bodies.call, merged_bodies.hides_module_of_parent, bodies.name, name)
    for name in sorted(mine.declared_global & theirs.local & (used.module_names | used.local)):
        yield finding_at(bodies.call, merged_bodies.made_global, bodies.name, name)
    nodes = walk(*bodies.child.body, *bodies.parent.body)
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    named = ((dotted(call.func), call.args) for call in calls)
    seeing = (
        one for one, given in named if one in ("locals", "eval", "exec") or (one in ("vars", "dir") and not given)
    )
    if function := next(seeing, None):
        yield finding_at(bodies.call, merged_bodies.sees_all, bodies.name, function)


def check_kinds(bodies: Bodies) -> Iterator[ClassFinding]:
    """Coroutines and generators whose bodies cannot replace each other."""
    child, parent, statement = bodies.child, bodies.parent, bodies.call
    is_awaited = isinstance(getattr(statement, "value", None), ast.Await)
    if isinstance(parent, ast.AsyncFunctionDef) != is_awaited or (
        is_awaited and not isinstance(child, ast.AsyncFunctionDef)
    ):
        waits = isinstance(parent, ast.AsyncFunctionDef)
        yield finding_at(statement, merged_bodies.other_kind, child.name, parent_waits=waits)
    is_yielded = isinstance(getattr(statement, "value", None), ast.YieldFrom)
    if (isinstance(statement, ast.Expr) or bodies.own) and is_generator(parent) and not is_yielded:
        yield finding_at(statement, merged_bodies.generator, child.name, of_parent=True)
    if (isinstance(statement, ast.Return) or is_yielded) and is_generator(child) and not is_generator(parent):
        yield finding_at(statement, merged_bodies.generator, child.name, of_parent=False)
