"""Names and classes that mean two things in one generated file."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Container, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule
from modular_converter.model.bindings import bindings_of, covers
from modular_converter.model.class_blocks import Member
from modular_converter.model.nodes import (
    decorators_of,
    dotted,
    is_super,
    parse,
    sought_by_name,
    super_attribute,
    tested_classes,
    walk,
)
from modular_converter.model.overriding import INIT_SUBCLASS, sought_above
from modular_converter.model.state import changes_state
from modular_converter.rules._words import WRITE_OUT, Obstacle, not_mergeable
from modular_converter.rules.made_classes import makers_of_heirs


if TYPE_CHECKING:
    from modular_converter.facts import Facts, GeneratedDefinition, TwoClasses


IMPORTED_AGAIN = Rule("MC205", "imported-again", "a name is imported below its own definition, or from two places")


def imported_again(location: Location, name: str, file: str, used: int, kind: str, imported: int) -> Finding:
    """`file` imports `name` at one line, below the line with the definition or import (`kind`) that would be used."""
    return IMPORTED_AGAIN.finding(
        location,
        f"{file} imports `{name}` in line {imported}, but the generated code would use the {kind} in line {used}",
        help=f"Remove one of the two, or give one a name other than `{name}`. Put alternatives into one `try` or `if`.",
    )


GETMRO = "getmro"
ANCESTRY = ("__subclasses__", "__mro__", "__base__", "__bases__", "__orig_bases__", "mro", GETMRO)
"""Attributes that hold the classes above one, and functions that give them."""

ANNOTATIONS = "__annotations__"
NAMESPACES = ("__dict__", ANNOTATIONS, "__type_params__", "vars(")
"""The attributes that a class has of its own alone."""
OWN_CLASS = ("cls", "type(self)", "self.__class__", "__class__", "self")
_OF_CLASS = re.compile(r"cls|type\(\w+\)|(?:\w+\.)?__class__")
_PLAIN = frozenset({"staticmethod", "classmethod"})
"""The decorators with which `super().f()` calls `f`."""

PARENT_AS_CLASS = Rule(
    "MC206",
    "parent-as-class",
    "code uses the parent as a class of its own, which the generated class does not inherit from",
)


def compare_parent_as_class(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find code that needs the parent as a class of its own."""
    for found in (*_uses_of_parent(classes), *_of_own_class(classes), *_looks_at_classes(classes)):
        yield found.finding(PARENT_AS_CLASS)


def _of_own_class(classes: TwoClasses) -> Iterator[Obstacle]:
    """Members of the parent that read their own class."""
    for member in classes.kept:
        if _reads_own_class(member):
            reason = "its `__class__` is the parent, but in the generated class it would be your class"
            yield Obstacle(classes.child.node, min(member.binds, default="__class__"), reason)
        elif name := _replaced_by_name(member, classes.name, classes.child.binds_anew):
            reason = f"it reads the parent's `{name}` by the name of its class, but in the generated class it would read yours"
            yield Obstacle(classes.child.node, min(member.binds, default=name), reason)


def _uses_of_parent(classes: TwoClasses) -> Iterator[Obstacle]:
    """The parent's name, and `super` as a value. A generated file imports the class for annotations, and for those of its
    attributes that are the same for whoever reads them; `super(Parent, self).f` searches the bases of the generated class.
    """
    child, base = classes.child, classes.base.partition("[")[0]
    nothing_in_front = [*classes.bases][: len(classes.parent.bases)] == classes.parent.bases
    for member in child.members:
        if "super" not in member.text and base not in member.text:  # looking at every node of every member takes long
            continue
        nodes = list(walk(member.node))
        read = {*map(id, _read_from_outside(member, nodes, classes))} if base in member.text else set()
        taken = {id(node.value): node.attr for node in nodes if isinstance(node, ast.Attribute)}
        sought = (node.value for node in nodes if isinstance(node, ast.Attribute) and _reaches_class(node, classes))
        reaching = {id(call.func) for call in sought if isinstance(call, ast.Call)}
        by_name = filter(None, map(sought_by_name, nodes))
        reaching |= {id(call.func) for call, name in by_name if name not in classes.parent.binds}
        if nothing_in_front and member.is_function:
            read |= {id(sought_above(node, base, classes.parent.binds)) for node in walk(*member.function.body)}
        for node in nodes:
            if is_super(node) and id(node) not in reaching:
                reason = f"`super()` is used as a value, and in the generated class it would not reach `{base}`"
                yield Obstacle(
                    _handed_on(node, nodes, taken),
                    min(member.binds, default="super"),
                    reason,
                    _taken_otherwise(member, "", classes),
                )
            elif isinstance(node, ast.Name) and node.id == base and id(node) not in read:
                reason = f"the generated class does not inherit from `{base}`, nor is it imported"
                cure = f"Use `{classes.name}` in its place, or write out what you take from it."
                if name := taken.get(id(node)):
                    cure = _taken_otherwise(member, name, classes)
                yield Obstacle(node, base, reason, cure)


def _reaches_class(node: ast.Attribute, classes: TwoClasses) -> bool:
    """Whether this is `super().f` of the class around it, or of one that the module names."""
    owner = next(iter(getattr(node.value, "args", ())), None)
    names_class = isinstance(owner, ast.expr) and dotted(owner).partition(".")[0] in classes.around.module_names
    return bool(super_attribute(node, classes.name) or (names_class and super_attribute(node)))


def _handed_on(function: ast.AST, nodes: Sequence[ast.AST], holders: Container[int]) -> ast.AST:
    """Where the result of a call is handed on by the name that it is assigned to; the called function where it is not."""
    names = {
        target.id
        for one in nodes
        if isinstance(one, ast.Assign) and getattr(one.value, "func", None) is function
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    uses = (one for one in nodes if isinstance(one, ast.Name) and one.id in names and isinstance(one.ctx, ast.Load))
    handed_on = (one for one in uses if id(one) not in holders)
    return min(handed_on, key=lambda one: (one.lineno, one.col_offset), default=function)


def _taken_otherwise(member: Member, name: str, classes: TwoClasses) -> str:
    """The cure for a member that takes `name` from the parent, "" for what is not known. Only a method can have the
    parent's lines of that method by a call.
    """
    base = classes.base.partition("[")[0]
    written = f"rite what you take from `{f'{base}.{name}' if name else base}` out in your class."
    for method in member.binds if not name or name in member.binds else ():
        both = [member, *(one for one in classes.parent.members if method in one.binds)]
        if len(both) > 1 and all(one.is_function and {*decorators_of(one.function)} <= _PLAIN for one in both):
            return f"Call `super().{method}(…)` in a statement of its own, or w{written}"
    return f"W{written}"


def _read_from_outside(member: Member, nodes: Sequence[ast.AST], classes: TwoClasses) -> Iterator[ast.expr]:
    """The expressions of a member that may name the parent though the generated class does not inherit from it: in
    annotations, for a class attribute of the child, as the holder of a constant, a nested class, a static or a class method, beside its
    heir in `isinstance(x, (Parent, Heir))` and `case Parent() | Heir()`, and in `type(x) is Parent`.
    """
    theirs = {name: one for one in classes.parent.members for name in one.binds}
    changed = bindings_of(member.node).effects.changes
    for asked in tested_classes(nodes):
        yield from asked if classes.name in map(dotted, asked) else ()
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and node.attr in theirs
            and not any(covers(dotted(node), path) for path in changed)
        ):
            found = theirs[node.attr]
            if _is_alike(found) or (not found.is_function and member.is_attribute):
                yield node.value
        if isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, ast.expr):
                yield from (one for one in walk(annotation) if isinstance(one, ast.Name))


def _is_alike(member: Member) -> bool:
    """Whether a member is the same for whoever takes it from a class: a constant, a class, a method without an instance that
    changes neither a class nor what its module holds, of which the generated class and file have their own.
    """
    if member.is_function:
        return not _PLAIN.isdisjoint(decorators_of(member.function)) and not changes_state(member.function)
    value = getattr(member.node, "value", None)
    return isinstance(member.node, ast.ClassDef) or (value is not None and isinstance(value, ast.Constant))


def _looks_at_classes(classes: TwoClasses) -> Iterator[Obstacle]:
    """Code that inspects its base classes, of which the parent is no longer one, or the members of its class alone."""
    for member in (*classes.child.members, *classes.kept):
        place = member.node if member in classes.child.members else classes.child.node
        for name, reason in _looked_at(member.node, member.text, classes.name):
            if "__type_params__" in name and not getattr(classes.parent.node, "type_params", ()):
                continue
            method = min(member.binds, default=name)
            yield Obstacle(place, method, reason, f"Write `{method}` in your class without `{name}`.")


def check_parent_as_class(facts: Facts) -> Iterator[Finding]:
    """Find bases in the generated file, decorators and descriptors that inspect the class which they are those of."""
    looking = [name for name, one in facts.generated.items() if _may_look(one.text)]
    by_classes = frozenset().union(*(one.uses for one in facts.generated.values() if one.is_class and looking))
    for heir, parent in facts.heirs:
        hooks = [one for _, node in facts.makers_of(parent) for one in node.body]
        for hook in (one for one in hooks if getattr(one, "name", "") == INIT_SUBCLASS):
            for _, reason in _looked_at(hook, ast.unparse(hook), ""):
                yield not_mergeable(PARENT_AS_CLASS, facts.at_class(heir), INIT_SUBCLASS, reason, WRITE_OUT)
        for maker in facts.answer(makers_of_heirs)[heir.name]:
            for name, reason in _looked_at_by(maker.function, maker.holder):
                cure = f"Write all members that it shall see into your class, or `{maker.by}` without `{name}`."
                yield not_mergeable(PARENT_AS_CLASS, facts.at_class(heir), maker.by, reason, cure)
        above = [one.node.name for one in facts.lineage(heir.name)] if looking else []
        for each in (facts.generated[name] for name in looking if name not in above[:1]):
            # A function that no class names is given one by whoever calls it.
            is_met = each.name in facts.generated[heir.name].uses or heir.name in each.uses
            is_met |= not each.is_class and each.name not in by_classes
            for node in _methods_of(each) if each.name in above or is_met else ():
                ignored = OWN_CLASS if each.is_class and each.name not in above else ()
                for name, reason in _looked_at(node, ast.unparse(node), "", ignored):
                    method = getattr(node, "name", name)
                    cure = f"Write `{method}`{' in your class' * (each.name in above)} without `{name}`."
                    yield not_mergeable(PARENT_AS_CLASS, facts.at_class(heir), method, reason, cure)


def _methods_of(one: GeneratedDefinition) -> Sequence[ast.stmt]:
    return one.members.node.body if one.is_class else parse(one.text).body


@functools.lru_cache(maxsize=256)  # heirs have the decorators of their parents in common
def _looked_at_by(function: ast.AST, holder: str) -> Sequence[tuple[str, str]]:
    return [*_looked_at(function, ast.unparse(function), holder)]


def _may_look(text: str) -> bool:
    return any(name in text for name in (*ANCESTRY, *NAMESPACES))


def _looked_at(node: ast.AST, text: str, own_class: str, ignored: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """What code inspects of its class, or of those of what it is handed, with what is otherwise in the generated class; but for
    the classes `ignored`.
    """
    if not _may_look(text):
        return
    looked, seen = set[str](), set[str]()
    for one in walk(node):
        owner, name = _taken_of_class(one)
        if name in ANCESTRY and owner not in ignored:
            looked.add(name)
        is_class = owner == own_class or _OF_CLASS.fullmatch(owner) or (owner == "self" and name == ANNOTATIONS)
        if name in NAMESPACES and owner and is_class and owner not in ignored:
            seen.add(ast.unparse(one))
    for name in sorted(looked):
        yield name, f"`{name}` leads to the parent, from which the generated class does not inherit"
    for name in sorted(seen):
        yield name, f"`{name}` has the members of your class alone, but in the generated class the parent's too"


def _taken_of_class(node: ast.AST) -> tuple[str, str]:
    """The class, as text, and its attribute that a node takes: of `vars(cls)`, `type(self).__dict__`, `getmro(cls)`."""
    match node:
        case ast.Attribute(ast.expr() as owner, name):
            return ast.unparse(owner), name
        case ast.Call(ast.Name("getattr"), [owner, ast.Constant(str(name)), *_]):
            return ast.unparse(owner), name
        case ast.Call(ast.Name("vars"), [owner]):
            return ast.unparse(owner), "__dict__"
        case ast.Name("getmro" as name):
            return "", name
    return "", ""


def _replaced_by_name(member: Member, own_class: str, replaced: Set[str]) -> str:
    """The first member that a method reads by the name of its class, and that the child replaces."""
    if f"{own_class}." not in member.text:
        return ""
    found = (node for node in walk(member.node) if isinstance(node, ast.Attribute) and node.attr in replaced)
    return next((one.attr for one in found if isinstance(one.value, ast.Name) and one.value.id == own_class), "")


def _reads_own_class(member: Member) -> bool:
    """Whether a method reads `__class__`, except in `super(__class__, self)`, which works in any class."""
    if "__class__" not in member.text:
        return False
    nodes = list(walk(member.node))
    known = {id(node.args[0]) for node in nodes if isinstance(node, ast.Call) and node.args and is_super(node.func)}
    return any(isinstance(node, ast.Name) and node.id == "__class__" and id(node) not in known for node in nodes)


CHANGED_MEANING = Rule(
    "MC320", "changed-meaning", "a name means something else in generated code than where that code was written"
)


def changed_meaning(
    location: Location,
    name: str,
    users: Sequence[str],
    wanted: str,
    found: str,
    *,
    is_class: bool,
    becomes: str,
    naming: str = "",
) -> Finding:
    """`wanted` is the file or module whose `name` the `users` were written for, `found` the one that they would use, which
    it calls `becomes`. `naming` gives names for the heirs of `wanted`; "" if it is no neighbour, or has no heirs.
    """
    who = ", ".join(f"`{user}`" for user in users)
    if is_class and naming:
        cure = naming
    elif is_class:
        cure = "Begin the names of the classes from one of the two with another prefix, as in `class NewTextMLP(…)`."
    else:
        cure = f"Write `{name}` out in the modular file under another name, and override what uses it in {who}."
    message = f"the generated {who} would use `{name}` of {found}, not of {wanted} as written"
    if [*users] == [becomes] and not is_class:
        message = (
            f"the generated `{becomes}` would call itself for ever in place of `{name}` of {wanted}, renamed like it"
        )
        cure = f"Give yours another name than `{becomes}`, and override what has to use it."
    return CHANGED_MEANING.finding(location, message, help=cure)


def not_imported(location: Location, name: str, user: str, neighbour: str) -> Finding:
    """`user` reads `name`, which the modular file lacks and the module of its parent has."""
    return CHANGED_MEANING.finding(
        location,
        f"`{user}` reads `{name}`, which this file neither defines nor imports; the generated class finds that of {neighbour}",
        help=f"Import `{name}`, or define it.",
    )


def displaced(location: Location, name: str, found: str) -> Finding:
    """The definition `name` of the neighbour `found` displaces the modular file's own from a generated file."""
    return CHANGED_MEANING.finding(
        location,
        f"`{name}` of the modular file is replaced by `{name}` of {found}, for which inherited code was written",
        help=f"Give yours another name, and override the code that has to use it in place of `{name}`.",
    )


CLASS_BESIDE_ITS_COPY = Rule(
    "MC336",
    "class-beside-its-copy",
    "a generated file uses a neighbour's class and a copy or an heir of it, which are two classes",
    formerly="MC320",
)


def copied(location: Location, user: str, name: str, copy: str, module: str) -> Finding:
    """`user` uses the class `name` of the neighbour `module`, of which inherited code has the copy `copy`."""
    return CLASS_BESIDE_ITS_COPY.finding(
        location,
        f"the generated `{user}` would use `{name}` of `{module}`, and inherited code its copy `{copy}`: two classes",
        help=f"Write `class {copy}({name})` with `pass` in the modular file, and `{copy}` where you use it.",
    )


def parent_lost(location: Location, user: str, parent: str, heir: str, module: str) -> Finding:
    """`user` asks for instances of `parent`, of which the generated `heir` is none."""
    return CLASS_BESIDE_ITS_COPY.finding(
        location,
        f"the generated `{user}` would ask for `{parent}` of `{module}`, from which the generated `{heir}` does not inherit",
        help=f"Ask for `{heir}`, or for both.",
    )


def heir_left_out(location: Location, user: str, asked: str, heir: str) -> Finding:
    """`user`, which is inherited, asks for instances of `asked`, which stands for the parent of `heir`."""
    return CLASS_BESIDE_ITS_COPY.finding(
        location,
        f"the generated `{user}` would ask for `{asked}`, from which the generated `{heir}` does not inherit",
        help=f"Write `class {heir}({asked})`, with a class `{asked}` of your own, or override what asks.",
    )


def type_of_heir(location: Location, user: str, parent: str, heir: str) -> Finding:
    """`user`, which is inherited, asks for the type of `parent` itself."""
    return CLASS_BESIDE_ITS_COPY.finding(
        location,
        f"the generated `{user}` asks whether a type is `{heir}`; with inheritance it asks for `{parent}`, which `{heir}` is not",
        help=f"Override what asks if it shall not know `{heir}`; else silence this finding.",
    )


NAME_DEFINED_TWICE = Rule(
    "MC338",
    "name-defined-twice",
    "a definition reads a name that its file defines again further down, and a generated file has the last one",
    formerly="MC320",
)


def redefined(location: Location, user: str, name: str, wanted: str, found: str) -> Finding:
    """A file defines `name` on two lines, and `user`, which is created between them, uses the first definition. Both are
    given as file and line.
    """
    return NAME_DEFINED_TWICE.finding(
        location,
        f"the generated `{user}` would use `{name}` of {found}, not of {wanted} as written",
        help=f"Give the two different names, or write `{user}` out in the modular file.",
    )


def entered_above(location: Location, user: str, table: str, entry: str, found: str) -> Finding:
    """`user` reads `table` when it is created, before `entry` is entered there, at the file and line `found`."""
    return NAME_DEFINED_TWICE.finding(
        location,
        f"the generated `{user}` would find `{entry}` of {found} in `{table}`, where it is entered only further down",
        help=f"Read `{table}` in a method, or write `{user}` out in the modular file without it.",
    )


HELD_TWICE = Rule(
    "MC341",
    "object-held-twice",
    "two generated files hold an object each, though code fills it, counts it up, or asks for that very object",
)


def held_twice(location: Location, name: str, user: str, files: Sequence[str], is_same: bool) -> Finding:
    """`user` changes the object `name`, or asks whether another one is it (`is_same`); each of `files` has its own."""
    use = (
        f"asks whether something is the `{name}` of its file" if is_same else f"changes the `{name}` of its file alone"
    )
    return HELD_TWICE.finding(
        location,
        f"the generated `{user}` {use}: {' and '.join(files)} hold one each",
        help=f"Make `{name}` an attribute of a class, which one file takes from the other, or move it into a module of its own.",
    )
