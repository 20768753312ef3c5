"""What Python does once where it makes one class, and otherwise where it makes two: header, bases, decorators, descriptors."""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.facts import INHERITED_KEYWORDS
from modular_converter.findings import ClassFinding, Finding, Rule
from modular_converter.model.bindings import (
    ADDING,
    EVERYTHING,
    FUNCTIONS,
    Function,
    ScopeKind,
    attributes_set,
    bindings_in,
    bindings_of,
    parameters_of,
)
from modular_converter.model.class_blocks import ClassBlock, class_node
from modular_converter.model.nodes import (
    BY_NAME,
    decorator_path,
    dotted,
    named_values,
    parse,
    statement_value,
    walk,
    walk_until,
)
from modular_converter.model.overriding import (
    EQUALITY,
    HASH,
    INIT_SUBCLASS,
    METACLASS,
    NO_DECORATORS,
    SLOTS,
    first_parameter,
    metaclass_of,
)
from modular_converter.model.resolver import is_plain_metaclass
from modular_converter.model.state import returned
from modular_converter.rules._words import WRITE_OUT, Obstacle, fields_of, listed, not_mergeable


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, Parent, TwoClasses
    from modular_converter.model.class_blocks import Members


OF_NAMED_TUPLES = frozenset(
    ("__new__", "__init__", "__slots__", "__getnewargs__")
    + ("_fields", "_field_defaults", "_field_types", "_make", "_replace", "_asdict", "_source")
)
"""The names that the body of a named tuple may not bind."""

CLASS_MADE_OTHERWISE = Rule(
    "MC208",
    "class-made-otherwise",
    "Python would make the generated class otherwise than the two that inherit",
)


def compare_class_made_otherwise(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find what Python does once where it makes one class, and otherwise where it makes two."""
    checks = (_slots, _making, _named_tuple, _protocol, _total)
    found = itertools.chain.from_iterable(check(classes.child, classes.parent) for check in checks)
    if (reason := _made_by(classes.parent.node)) and classes.around.makes_otherwise(metaclass_of(classes.parent.node)):
        yield Obstacle(classes.child.node, METACLASS, reason, WRITE_OUT).finding(CLASS_MADE_OTHERWISE)
    yield from (one.finding(CLASS_MADE_OTHERWISE) for one in (*found, *_header(classes)))


def _slots(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Slots, which Python counts for each class alone, as it does that there are none."""
    if SLOTS in child.binds | parent.binds:
        reason = "with inheritance each class has its own, and instances a dictionary where one of the two has none"
        yield Obstacle(child.node, SLOTS, reason, WRITE_OUT)


def _making(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Members of a class that Python looks at when it makes it."""
    own = child.binds_anew
    hashes = (
        ast.unparse(getattr(one.node, "value", one.node)) != "None" for one in parent.members if HASH in one.binds
    )
    if EQUALITY in own and HASH not in own and any(hashes):
        reason = f"with inheritance, a class that defines `{EQUALITY}` loses the parent's `{HASH}`"
        yield Obstacle(child.node, HASH, reason, f"Define `{HASH}`, or assign `{HASH} = None`.")
    for member in child.members:
        if isinstance(member.node, ast.Delete) and member.binds & parent.binds:
            reason = "with inheritance, the parent's value is visible again after this `del`"
            yield Obstacle(
                member.node, min(member.binds), reason, "Leave the name out of your class, or assign its value."
            )
    if any(INIT_SUBCLASS in member.binds for member in parent.members):
        reason = (
            "with inheritance, Python calls the parent's method for your class; the generated class has no such parent"
        )
        yield Obstacle(child.node, INIT_SUBCLASS, reason, WRITE_OUT)


def _named_tuple(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Members that an heir of a named tuple may have, and a named tuple may not."""
    if not _inherits(parent, "NamedTuple"):
        return
    if len(child.bases) > 1:
        yield Obstacle(child.node, child.node.name, "a named tuple has no further bases", WRITE_OUT)
    for member in child.members:
        name = min(member.binds, default="")
        if member.binds & OF_NAMED_TUPLES:
            reason = "a class that inherits from a named tuple may define it, but a named tuple may not"
            yield Obstacle(member.node, min(member.binds & OF_NAMED_TUPLES), reason, WRITE_OUT)
        elif isinstance(member.node, ast.AnnAssign):
            reason = "it would become a field of the named tuple; with inheritance it is none"
            yield Obstacle(member.node, name, reason, WRITE_OUT)
        elif member.is_function and attributes_set(member.function):
            reason = "instances of a named tuple take no attributes, but those of your class do"
            yield Obstacle(member.node, name, reason, WRITE_OUT)
        elif "super(" in member.text and not member.binds & parent.binds:
            yield Obstacle(member.node, name, "`super()` does not work in a named tuple", WRITE_OUT)


def _inherits(block: ClassBlock, name: str) -> bool:
    return any(base.partition("[")[0].rpartition(".")[2] == name for base in block.bases)


def _protocol(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """A class that inherits from a protocol without being one."""
    if _inherits(parent, "Protocol") and not _inherits(child, "Protocol"):
        reason = "the parent is a protocol and your class is not, but the generated class would be one"
        cure = "Write the class out, or name `Protocol` behind the parent if it shall be a protocol too."
        yield Obstacle(child.node, child.node.name, reason, cure)


def _total(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Typed dictionaries: `total` counts for the fields of its own class, and the generated class has only one. A child
    without `total` takes the parent's for its own fields, as in the corpus (muse_glimmer).
    """
    own = _keywords(child).get("total")
    if own is None or own == _keywords(parent).get("total", "True"):
        return
    if inherited := fields_of(parent) - fields_of(child):
        reason = f"`total={own}` would count for the parent's {listed(inherited)} too"
        yield Obstacle(child.node, child.node.name, reason, WRITE_OUT)


def _header(classes: TwoClasses) -> Iterator[Obstacle]:
    """Keywords of the parent, which Python hands to `__init_subclass__` or to the metaclass for the parent alone. Where
    that only sets attributes of the class, another value in the child's header, or the hook's default, hides the parent's.
    """
    own, theirs = _keywords(classes.child), _keywords(classes.parent)
    unlike = frozenset(one for one in own.keys() | theirs.keys() if not _is_alike(own.get(one), theirs.get(one)))
    for keyword, value in theirs.items():
        if keyword in INHERITED_KEYWORDS or own.get(keyword) == value:
            continue
        if {classes.around.hook_sets_attributes(one, unlike) for one in classes.bases} - {None} == {True}:
            continue
        reason = f"`{keyword}={value}` in its header applies to the parent alone, but the generated class has one header for both"
        yield Obstacle(classes.child.node, classes.name, reason, WRITE_OUT)


def _is_alike(own: str | None, theirs: str | None) -> bool:
    """Whether two values are equal, or constants that are both true or both false, and both None or both not."""
    if own == theirs or own is None or theirs is None:
        return own == theirs
    first, second = (statement_value(parse(text).body[0]) for text in (own, theirs))
    if not (isinstance(first, ast.Constant) and isinstance(second, ast.Constant)):
        return False
    return bool(first.value) is bool(second.value) and (first.value is None) is (second.value is None)


def check_class_made_otherwise(facts: Facts) -> Iterator[Finding]:
    """Find what a base, a decorator or a descriptor does for each class that is made: for the parent, and then for its heir."""
    making = any(word in one.text for one in facts.generated.values() for word in (INIT_SUBCLASS, METACLASS))
    for heir, parent in facts.heirs:
        above = [one.node for one in facts.lineage(heir.name)][1:] if making else []
        elsewhere = facts.makers_of(parent)
        made = [(METACLASS, _made_by(one)) for one in (*above, *(one for by, one in elsewhere if by == METACLASS))]
        made += [(INIT_SUBCLASS, _adds_up(hook, "")) for hook in _hooks(above)]
        # What another file holds, such as a table of all classes, has the parent too.
        made += [
            (INIT_SUBCLASS, _adds_up(hook, first_parameter(hook))) for hook in _hooks([one for _, one in elsewhere])
        ]
        changes = facts.answer(changes_of_makers)[heir.name]
        made += ((by, reason) for by, reason, is_error in changes if is_error)
        for subject, reason in dict.fromkeys(made):
            if reason:
                yield not_mergeable(CLASS_MADE_OTHERWISE, facts.at_class(heir), subject, reason, WRITE_OUT)
    for one, parent in facts.parents_apart:
        for by, path in _entered_again(facts, one, parent):
            reason = f"it changes `{path}` of another file, once more for a class that stands for the parent"
            yield not_mergeable(CLASS_MADE_OTHERWISE, facts.at_class(one), by, reason, WRITE_OUT)


def _entered_again(facts: Facts, one: ClassFacts, parent: Parent) -> Iterator[tuple[str, str]]:
    """What other files hold, and what the making of a parent changes there, which happens in its own file already: each path
    with the decorator, descriptor, base or metaclass.
    """
    here = {*parent.neighbour.definitions, *facts.generated}
    for maker in (*_decorators(facts, one, parent), *_descriptors(facts, one, parent)):
        is_beside = here.isdisjoint((maker.by.partition(".")[0], maker.made_by.partition(".")[0]))
        yield from (
            (maker.by, path) for path in changed_outside(maker) if is_beside or path.partition(".")[0] not in here
        )
    elsewhere = facts.makers_of(parent)
    yield from ((by, metaclass_of(node)) for by, node in elsewhere if by == METACLASS)
    above = [members.node for members in facts.lineage(one.name)]
    named = (metaclass for metaclass in map(metaclass_of, above) if not is_plain_metaclass(metaclass))
    yield from ((METACLASS, one) for one in named if one not in facts.generated)
    metaclasses = [facts.generated[name].members for name in map(metaclass_of, above) if name in facts.generated]
    hooks = [*_hooks([*above, *(node for by, node in elsewhere if by == INIT_SUBCLASS)])]
    for hook in (*hooks, *(each.node for members in metaclasses for each in members.methods)):
        paths = changed_outside(Maker(hook.name, hook, first_parameter(hook), of_parent=True, of_heir=False))
        yield from ((hook.name, path) for path in paths if path.partition(".")[0] not in here)


def entered_as_heir(facts: Facts) -> Iterator[tuple[str, str]]:
    """The heirs whose parent stands beside them and is entered under their own name, since renaming made one of both; each with
    the decorator.
    """
    for one, parent in facts.parents_apart:
        calls = (node for node in parent.members.node.decorator_list if isinstance(node, ast.Call))
        theirs = {decorator_path(node): ast.unparse(node) for node in calls}
        entering = [
            maker.by for maker in _decorators(facts, one, parent) if maker.by in theirs and changed_outside(maker)
        ]
        for heir in (each for each in facts.classes.values() if entering and one.name in each.members.base_names):
            own = {*map(ast.unparse, heir.members.node.decorator_list)}
            yield from ((heir.name, by) for by in entering if theirs[by] in own)


def changed_outside(maker: Maker) -> Sequence[str]:
    """The paths of its module, or of an object there whose method it is, that the maker of a class changes; a function that it
    hands the class to is one.
    """
    return _changed_outside(maker.function, maker.holder, maker.beside, maker.around, is_method="." in maker.by)


@functools.lru_cache(maxsize=256)  # see `_getting_class`
def _changed_outside(
    function: Function | ast.Lambda, holder: str, beside: tuple[str, ...], around: str, *, is_method: bool
) -> Sequence[str]:
    found = set[str]()
    functions = (one for one in bindings_of(parse(around)).everywhere if one.kind is ScopeKind.FUNCTION)
    captured = frozenset[str]().union(*(one.local for one in functions))
    for one, at in ((function, holder), *_handed_on(function, holder, beside)):
        scope = bindings_in(one)
        names = scope.module_names - captured.union(dir(builtins))
        names |= {*parameters_of(one)} - {at} if is_method else set()
        paths = frozenset[str]().union(*(each.effects.writes for each in scope.everywhere))
        found.update(path for path in paths if path.partition(".")[0] in names)
        calls = (each for each in walk(one) if isinstance(each, ast.Call) and not beside)
        given = (each for each in calls if at in {*map(dotted, each.args)} and _is_of_descriptor(function))
        found.update(name for each in given if (name := dotted(each.func)) and name.partition(".")[0] in names)
    return sorted(found)


def _hooks(above: Sequence[ast.ClassDef]) -> Iterator[Function]:
    nodes = (node for one in above for node in one.body)
    yield from (node for node in nodes if isinstance(node, Function) and node.name == INIT_SUBCLASS)


def _made_by(node: ast.ClassDef) -> str:
    """What a metaclass in the header of a class would do once; "" for none."""
    metaclass = metaclass_of(node)
    if is_plain_metaclass(metaclass):
        return ""
    return f"with inheritance, `{metaclass}` makes the parent and then your class; here it would make only one class"


def _adds_up(hook: Function, holder: str) -> str:
    """What `__init_subclass__` of a base would do once, where twice is something else; "" for nothing. `holder` is the name
    whose attributes count; "" for all.
    """
    bindings = bindings_of(*hook.body)
    owners = {path.rpartition(".")[0] for path in bindings.effects.binds}.union(
        [holder] if holder else parameters_of(hook)
    ) - {""}
    counted = (one for one in owners if not holder or one.partition(".")[0] == holder)
    if twice := sorted(f"{one}.{name}" for one in counted for name in handling_of(hook, one).again):
        return f"a base's sets `{twice[0]}` from its own value, for the parent and again for your class"
    added = sorted(path for path in _added_to(hook) if path and path.partition(".")[0] not in bindings.assigns)
    added = [path for path in added if not holder or path.startswith(f"{holder}.")]
    return f"a base's adds to `{added[0]}`, for the parent and again for your class" if added else ""


def _added_to(hook: Function) -> Iterator[str]:
    """The lists that `__init_subclass__` makes longer, and the tables and sets in which it enters something of the class."""
    local = bindings_in(hook).local
    for node in walk(*hook.body):
        match node:
            case ast.Call(ast.Attribute(owner, method)) if method in ADDING:
                yield dotted(owner)
            case ast.Subscript(owner, entry, ast.Store()) | ast.Call(
                ast.Attribute(owner, "add" | "setdefault"), [entry, *_]
            ):
                if not bindings_of(entry).reads.isdisjoint(local):
                    yield dotted(owner)
            case ast.Call(ast.Attribute(owner, "update")):
                yield dotted(owner)


def _keywords(block: ClassBlock) -> dict[str, str]:
    return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in block.node.keywords}


SET_NAME = "__set_name__"
LISTING = frozenset({"dir", "getmembers"})
"""The functions that give all attributes of a class. What looks at `vars` is MC206."""
DESCRIBING = frozenset({"__doc__", "__signature__", "__module__"})
"""The attributes of a class that say something to readers alone."""
NAMES_OF_CLASSES = frozenset({"__name__", "__qualname__"})
"""Those that each class has of its own."""


class Maker(NamedTuple):
    """A function that gets a class of the modular file, or its parent, where that is made."""

    by: str
    """The decorator or the attribute, as the class has it."""
    function: Function | ast.Lambda
    holder: str
    """The parameter that holds the class."""
    of_parent: bool
    """Whether inheritance calls it for the parent."""
    of_heir: bool
    """Whether it calls it for the heir."""
    is_lost: bool = False
    """Whether the generated class is without it."""
    beside: tuple[str, ...] = ()
    """The functions of its module that it uses."""
    around: str = ""
    """The definition that it stands in, where that is another one, as text."""
    made_by: str = ""
    """Of a descriptor: its class, as the class names it."""

    @property
    def is_descriptor(self) -> bool:
        """Whether it is a descriptor's, which may keep what it reads."""
        return _is_of_descriptor(self.function)


def _is_of_descriptor(function: Function | ast.Lambda) -> bool:
    return getattr(function, "name", "") == SET_NAME


class ClassHandling(NamedTuple):
    """What a function does with the class that it gets. `EVERYTHING` is an attribute whose name is computed."""

    sets: frozenset[str]
    """The attributes that it sets or deletes, but for `DESCRIBING`."""
    again: frozenset[str]
    """Those that it sets and reads."""
    reads: frozenset[str]
    keeps: bool
    """Whether it keeps something, there or in a descriptor."""


def makers_of_heirs(facts: Facts) -> Mapping[str, Sequence[Maker]]:
    """Heir -> the decorators and descriptors of the class and of its parent, as far as they can be read."""
    return {
        heir.name: [*_decorators(facts, heir, parent), *_descriptors(facts, heir, parent)]
        for heir, parent in facts.heirs
    }


def _decorators(facts: Facts, heir: ClassFacts, parent: Parent) -> Iterator[Maker]:
    if "@" not in heir.text and "@" not in parent.text:
        return
    own = {decorator_path(one): one for one in heir.members.node.decorator_list}
    theirs = {decorator_path(one): one for one in parent.members.node.decorator_list}
    for path, node in (own | theirs).items():
        is_own = path in own or path in {facts.renamed(parent, one) for one in own}
        is_lost = bool(own) and not is_own
        if is_lost and NO_DECORATORS in own:
            continue
        holder, _, method = path.rpartition(".")
        homes = (None, parent) if path in own else (parent,)  # imported from the neighbour, it has its new name here
        named = (facts.texts_of(one, home, "") for home in homes for one in (path, holder) if one)
        texts = next(filter(None, map(tuple, named)), ())
        for function, parameter in _getting_class(texts, method, is_factory=isinstance(node, ast.Call)):
            yield Maker(path, function, parameter, path in theirs, is_own, is_lost, texts[1:], texts[0])


_Taker = tuple[Function | ast.Lambda, str]
"""A function with the parameter that holds the class."""


@functools.lru_cache(maxsize=256)  # heirs have the decorators of their parents in common
def _getting_class(texts: tuple[str, ...], method: str, *, is_factory: bool) -> Sequence[_Taker]:
    """The functions that get the class from a decorator: itself, or those that it returns.

    Args:
        texts: the decorator, and what it uses if it is an assignment.
        method: the last part of its name.
    """
    own, *others = (walk_until((*FUNCTIONS, ast.Lambda, ast.ClassDef), parse(text)) for text in texts or [""])
    known = {node.name: node for one in others for node in one if isinstance(node, (*FUNCTIONS, ast.ClassDef))}
    found: list[_Taker] = []
    for node in own:
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            functions = [] if is_factory else [node]
            functions += returned(node) if isinstance(node, Function) else []
            found += ((one, name) for one in functions for name in [*parameters_of(one)][:1])
        elif isinstance(node, ast.ClassDef):
            found += _method(node, "__call__" if is_factory else "__init__")
        elif isinstance(node, ast.Name) and isinstance(used := known.get(node.id), Function):  # `partial(decorate, 2)`
            found += ((used, name) for name in parameters_of(used))
        elif isinstance(node, ast.Name) and isinstance(used, ast.ClassDef):  # `TABLE.register`, of `TABLE = Table()`
            found += _method(used, method)
    return found


def _method(node: ast.ClassDef, name: str) -> list[_Taker]:
    """The method of a name, with the parameter behind its instance."""
    methods = (one for one in node.body if isinstance(one, Function) and one.name == name)
    return [(one, parameter) for one in methods for parameter in [*parameters_of(one)][1:2]]


def _descriptors(facts: Facts, heir: ClassFacts, parent: Parent) -> Iterator[Maker]:
    both = heir.members.names & parent.members.names
    for owner, is_own in ((heir, True), (parent, False)):
        for name, value in named_values(owner.members.node.body):
            path = dotted(value.func) if isinstance(value, ast.Call) else ""
            is_again = name in both and not is_own
            for text in facts.texts_of(path, None if is_own else parent, SET_NAME) if path else ():
                for function, holder in _method(class_node(text), SET_NAME) if SET_NAME in text else ():
                    yield Maker(name, function, holder, not is_own, is_own or is_again, is_again, made_by=path)


@functools.lru_cache(maxsize=256)  # see `_getting_class`
def handling_of(function: Function | ast.Lambda, holder: str, beside: tuple[str, ...] = ()) -> ClassHandling:
    """What a function, with those within it, does with the class that its parameter `holder` holds. Of the functions `beside` it,
    to which it hands the class on, the attributes count that they set by their names, but for special ones: published
    decorators leave the class to functions that write its descriptions and wrap its methods.
    """
    nodes, names = _holding(function, holder)
    sets, reads, kept, asked = set[str](), set[str](), set[str](), set[str]()
    for helper, at in _handed_on(function, holder, beside):
        sets.update(name for name in handling_of(helper, at).sets if name != EVERYTHING and not name.startswith("__"))
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            kept.add(node.attr)
        if isinstance(node, ast.Attribute) and dotted(node.value) in names:
            (reads if isinstance(node.ctx, ast.Load) else sets).add(node.attr)
        elif isinstance(node, ast.AugAssign) and dotted(node.target).rpartition(".")[0] in names:
            reads.add(dotted(node.target).rpartition(".")[2])
        elif isinstance(node, ast.ClassDef) and names.intersection(map(dotted, node.bases)):
            sets |= bindings_of(*node.body).binds
        elif isinstance(node, ast.Call):
            called, given = dotted(node.func).rpartition(".")[2], node.args and dotted(node.args[0]) in names
            name = str(getattr(node.args[1], "value", EVERYTHING)) if node.args[1:] else EVERYTHING
            if given and (called in BY_NAME or called in LISTING):
                (asked if called == "hasattr" else sets if called in ("setattr", "delattr") else reads).add(name)
            elif called == "type" and names.intersection(
                map(dotted, getattr([*node.args, None, None][1], "elts", ()))
            ):
                sets.add(EVERYTHING)
    # What it sets after asking whether the class has it, stands beside no other.
    own, keeps = frozenset(sets - DESCRIBING - asked), bool((sets | kept) - DESCRIBING)
    return ClassHandling(own, frozenset(sets & reads - DESCRIBING), frozenset(reads), keeps)


def _holding(function: Function | ast.Lambda, holder: str) -> tuple[list[ast.AST], set[str]]:
    """The nodes of a function's body, and the names in it for what its parameter `holder` holds."""
    nodes = list(walk(*function.body) if isinstance(function.body, list) else walk(function.body))
    other_names = (one for one in nodes if isinstance(one, ast.Assign) and dotted(one.value) == holder)
    return nodes, {holder}.union(*(bindings_of(one).binds for one in other_names))


def _handed_on(
    function: Function | ast.Lambda, holder: str, beside: tuple[str, ...]
) -> Sequence[tuple[Function, str]]:
    """The functions beside a decorator that it hands the class on to, and they in turn, with the parameters that hold it."""
    functions = {node.name: node for text in beside for node in parse(text).body if isinstance(node, Function)}
    found: dict[tuple[str, str], Function] = {}
    todo: list[tuple[Function | ast.Lambda, str]] = [(function, holder)] if functions else []
    for one, at in todo:  # the list grows meanwhile
        nodes, names = _holding(one, at)
        for node in nodes:
            called = functions.get(dotted(node.func)) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and called is not None:
                given = zip([*parameters_of(called)], node.args)
                named = ((keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg)
                for name, value in (*given, *named):
                    if dotted(value) in names and (called.name, name) not in found:
                        found[called.name, name] = called
                        todo.append((called, name))
    return [(called, name) for (_, name), called in found.items()]


def changes_of_makers(facts: Facts) -> Mapping[str, Sequence[tuple[str, str, bool]]]:
    """Heir -> each decorator or descriptor that would set or read an attribute otherwise, how, and whether that is an error.

    Decorators of a parent are its heirs' by convention, and published ones wrap what their classes then have
    (`use_experts_implementation`, which wraps the heir's `forward`, `requires`, `strict`): the difference may be meant.
    """
    found: dict[str, list[tuple[str, str, bool]]] = {}
    for heir, makers in facts.answer(makers_of_heirs).items():
        changes = ((one, *changed_by(one, facts.classes[heir].members)) for one in makers)
        found[heir] = [
            (one.by, reason, one.is_descriptor and not name.startswith("__"))
            for one, name, reason in changes
            if reason
        ]
    return found


def changed_by(maker: Maker, heir: Members) -> tuple[str, str]:
    """The attribute of a class that a decorator or descriptor would set or read otherwise, and how; two "" for none."""
    sets, again, reads, keeps = handling_of(maker.function, maker.holder, maker.beside)
    is_taken = maker.of_parent and (maker.is_descriptor or not (maker.of_heir or maker.is_lost))
    if is_taken and (paths := changed_outside(maker)):
        return paths[0], f"it changes `{paths[0]}` for the parent, but in the generated class for yours"
    if maker.is_lost:
        lost = min(sets, default="")
        reason = f"it sets `{lost}` for the parent too, but in the generated class yours takes its place"
        return lost, reason if lost else ""
    if maker.of_parent and maker.of_heir:
        twice = min(again & sets, default="")
        return twice, f"it sets `{maker.holder}.{twice}` from its own value, once for each class" if twice else ""
    if not maker.of_parent or not (sets or keeps and maker.is_descriptor):
        return "", ""
    wrapped = {
        one.name for one in heir.methods if one.name.startswith("__") and one.name in dict(one.super_calls)
    } & reads
    changed = heir.names - wrapped
    if name := min(changed if EVERYTHING in sets else changed & sets, default=""):
        return name, f"it sets the parent's `{name}`, but in the generated class it would replace yours"
    if name := min((changed & reads or NAMES_OF_CLASSES & reads) - sets, default=""):
        return name, f"it reads the parent's `{name}`, but in the generated class it would read yours"
    if changed and EVERYTHING in reads:
        return EVERYTHING, "it reads members of the parent by computed names, but in the generated class yours too"
    return "", ""
