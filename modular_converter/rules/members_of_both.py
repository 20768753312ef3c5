"""Members that both classes have, or several heirs."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.bindings import FUNCTIONS, Function, bindings_of
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.model.overriding import (
    NO_DECORATORS,
    decorated_by,
    first_parameter,
    inherited_decorators,
    is_property,
    is_removal,
    is_super_statement,
    method_key,
)
from modular_converter.rules._words import Obstacle


if TYPE_CHECKING:
    from modular_converter.facts import Facts, TwoClasses
    from modular_converter.model.members import Members


NAME_OF_BOTH_CLASSES = Rule(
    code="MC209",
    name="name-of-both-classes",
    severity=Severity.ERROR,
    summary="a name in the body of the class would mean something else than with inheritance",
    explanation="""\
Two classes have two name spaces, the generated class has one. A statement of your class that reads `size` while the
class is made reads the `size` of the module, and in the generated class that of the parent's class. A decorator or a
default that an override takes from the parent's method reads the names of the parent's class. And the parent's private
names (`self.__x`), into which Python puts the name of the class, have that of your class.

Give your name another spelling.
""",
    formerly="MC204",
)


def compare_name_of_both_classes(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find names that two classes keep apart, and that one would join."""
    for found in (*_names_of_module(classes), *_private_to_each(classes), *_read_by_taken_expressions(classes)):
        yield found.finding(NAME_OF_BOTH_CLASSES)


def _names_of_module(classes: TwoClasses) -> Iterator[Obstacle]:
    """Names that the child's class reads from its module while it is created, and that the parent's class binds."""
    own = set[str]()
    for member in classes.child.members:
        for name in sorted((member.reads & classes.parent.binds) - own):
            if name in classes.around.module_names or hasattr(builtins, name):
                reason = f"it reads the `{name}` of your module, but would read that of the parent's class"
                cure = f"Give your `{name}` another name."
                yield Obstacle(member.node, min(member.binds, default=name), reason, cure)
        own |= member.binds


def _private_to_each(classes: TwoClasses) -> Iterator[Obstacle]:
    """The parent's private names (`self.__x`), into which Python writes the name of its class."""
    prefix = f"_{classes.base.rpartition('.')[2].lstrip('_')}__"
    for member in classes.child.members:
        if prefix in member.text:
            reason = f"the parent's private names get the name of your class, so there is no `{prefix}…`"
            yield Obstacle(member.node, min(member.binds, default=prefix), reason)


def _read_by_taken_expressions(classes: TwoClasses) -> Iterator[Obstacle]:
    """Decorators and defaults that an override takes from the parent's method, and that read names of the parent's class
    to which the child gives another value.
    """
    both = classes.child.binds & classes.parent.binds
    for own, theirs in classes.overrides if both else ():
        parts = inherited_decorators(own, theirs, classes.around.added)
        if own.args.kwarg is not None and own.args.kwarg.arg == SUPER_KWARGS:
            parts += [one for one in (*theirs.args.defaults, *theirs.args.kw_defaults) if one is not None]
        read = bindings_of(*parts).reads - {own.name, decorated_by(theirs)} if parts else frozenset[str]()
        for name in sorted(read & both):
            reason = f"a decorator or default that it takes from the parent's reads `{name}`: the parent's with inheritance,"
            cure = f"Give it decorators and parameters of its own, or give your `{name}` another name."
            yield Obstacle(own, own.name, f"{reason} yours in the generated class", cure)


HALF_OVERRIDDEN = Rule(
    code="MC323",
    name="half-overridden",
    severity=Severity.WARNING,
    summary="an override of one half of a member, where the other half does not follow",
    explanation="""\
Some members of a class have two halves: a field of a dataclass has an annotation and a value, a property has a getter
and a setter. `width = 32` takes the place of the parent's `width: int = 16`, and the generated class has no such field
any more. A getter without a setter takes the place of the parent's getter alone, and the parent's setter stays, where
inheritance would leave the property without one.

Write both halves.
""",
)


def annotation_lost(location: Location, name: str, annotation: str) -> Finding:
    """The parent has the field `name: annotation`, the child assigns to `name` alone."""
    return Finding(
        HALF_OVERRIDDEN,
        location,
        f"`{name}` loses the parent's annotation `{annotation}`, without which it is no field of a dataclass",
        help=f"Write `{name}: {annotation} = …`.",
    )


def accessor_kept(location: Location, name: str, accessor: str) -> Finding:
    """The child has a getter of `name`, the parent `@name.accessor` too."""
    return Finding(
        HALF_OVERRIDDEN,
        location,
        f"the property `{name}` keeps the parent's {accessor}, which inheritance would not give it",
        help=f"Write the {accessor} out below your `{name}`, or write `{name} = property(…)`, which has none.",
    )


def compare_half_overridden(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find fields that lose their annotation, and properties with a getter of the child and a setter of the parent."""
    annotations = {
        node.target.id: node.annotation
        for node in (member.node for member in classes.parent.members)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    methods = [member.function for member in classes.child.members if member.is_function]
    own = set(map(method_key, methods))
    for member in classes.child.members:
        node = member.node
        for target in node.targets if isinstance(node, ast.Assign) and not is_removal(member) else ():
            if isinstance(target, ast.Name) and target.id in annotations:
                annotation = ast.unparse(annotations[target.id])
                yield finding_at(node, annotation_lost, target.id, annotation)
    for accessor in (member.function for member in classes.parent.members if member.is_function):
        name = accessor.name
        getter = next((one for one in methods if one.name == name and not decorated_by(one)), None)
        if getter is None or not is_property(getter, classes.around.added) or decorated_by(accessor) != name:
            continue
        if method_key(accessor) not in own:
            kept = method_key(accessor).rpartition(".")[2]
            yield finding_at(getter, accessor_kept, name, kept)


CHANGING = frozenset({"property", "cached_property", "lru_cache", "cache"})
"""The decorators that make something else than a plain method, so that callers have to know of them."""

WITHOUT_EFFECT = frozenset({"abstractmethod", "overload", "override", "final", "no_type_check"})

METHOD_DECORATORS = Rule(
    code="MC335",
    name="method-decorators",
    severity=Severity.WARNING,
    summary="an override takes a decorator of the parent's method, or the parent's lines in it lose one",
    explanation="""\
A method without decorators takes those of the parent's method. `@property`, `@lru_cache` and their like make
something else of it, which inheritance would not do. Where your method has decorators of its own, those of the
parent's do not apply to the parent's lines in it.

Write the decorator, or `@no_inherit_decorator` for none.
""",
    formerly="MC323",
)


def decorator_taken(location: Location, name: str, decorator: str) -> Finding:
    """The child's method has no decorators, so it takes those of the parent's, which make something else of it."""
    return Finding(
        METHOD_DECORATORS,
        location,
        f"`{name}` takes the parent's `@{decorator}`, which inheritance would not give it",
        help=f"Write `@{decorator}` above it, or `@no_inherit_decorator` for none.",
    )


def decorator_lost(location: Location, name: str, decorator: str) -> Finding:
    """The child's method has decorators of its own, and the parent's lines."""
    return Finding(
        METHOD_DECORATORS,
        location,
        f"the parent's `@{decorator}` does not apply to its lines in `{name}`, which has decorators of its own",
        help=f"Write `@{decorator}` below yours too, or write out what it does.",
    )


def compare_method_decorators(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find methods with other decorators than with inheritance."""
    for own, theirs in classes.overrides:
        if theirs.decorator_list:
            yield from _compare_methods(own, theirs, inherited_decorators(own, theirs, classes.around.added))


def _compare_methods(child: Function, parent: Function, taken: Sequence[ast.expr]) -> Iterator[ClassFinding]:
    """Decorators of the parent's method that are taken and make something else of an override, and those that no longer
    apply to the parent's lines in an override with others.
    """
    takes_body = any(is_super_statement(node, child.name) for node in child.body)
    if not takes_body:
        for one in taken:
            if _decorator_name(one) in CHANGING:
                yield finding_at(child, decorator_taken, child.name, ast.unparse(one))
    elif child.decorator_list:
        applied = [(_decorator_name(one), _arguments(one)) for one in (*taken, *child.decorator_list)]
        for one in () if (NO_DECORATORS, frozenset()) in applied else parent.decorator_list:
            if _decorator_name(one) not in WITHOUT_EFFECT and (_decorator_name(one), _arguments(one)) not in applied:
                yield finding_at(child, decorator_lost, child.name, ast.unparse(one))


def _decorator_name(decorator: ast.expr) -> str:
    """`lru_cache` of `@functools.lru_cache(maxsize=1)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2]


def _arguments(decorator: ast.expr) -> frozenset[str]:
    """The arguments of a decorator but for texts, which are words for a reader: `@auto_docstring(custom_intro="…")`."""
    if not isinstance(decorator, ast.Call):
        return frozenset()
    values: list[tuple[ast.AST, ast.expr]] = [(one, one) for one in decorator.args]
    values += [(one, one.value) for one in decorator.keywords]
    return frozenset(ast.unparse(one) for one, value in values if not _is_text(value))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


SHARED_CLASS_ATTRIBUTE = Rule(
    code="MC339",
    name="shared-class-attribute",
    severity=Severity.WARNING,
    summary="two classes would no longer share an object of their parent",
    explanation="""\
A list or dictionary in the body of a class is one object for all its heirs: what one of them puts into `self.cache` is
seen by the others. Each generated class has the parent's body, and so an object of its own.

Give each class an object of its own, which has the same meaning in both, or put the object at the top level of the
modular file, and use it in the methods.
""",
)

MUTABLE = frozenset(["Counter", "OrderedDict", "bytearray", "defaultdict", "deque", "dict", "list", "set"])
"""The calls that make an object which can be changed."""


def shared_class_attribute(location: Location, name: str, attribute: str, other: str, parent: str) -> Finding:
    """The heirs `name` and `other` of `parent` change its `attribute` in place."""
    return Finding(
        SHARED_CLASS_ATTRIBUTE,
        location,
        f"`{attribute}` of `{parent}` is one object for `{other}` and `{name}`, but each generated class has its own",
        help=f"Write `{attribute}` into both classes, or put the object at the top level of the modular file.",
    )


def check_shared_class_attribute(facts: Facts) -> Iterator[Finding]:
    """Find objects in the body of a parent that generated code changes in place, where it has several heirs."""
    heirs: dict[tuple[str, str], str] = {}
    for heir, parent in facts.heirs:
        generated = facts.generated.get(heir.name)
        other = heirs.setdefault((parent.neighbour.path, parent.original), heir.name)
        if other == heir.name or generated is None:
            continue
        own = heir.members.names | facts.classes[other].members.names
        mutable = _mutable(parent.members)
        for attribute in sorted(parent.members.names - own):
            if _is_changed(generated.members, attribute, heir.name, attribute in mutable):
                yield shared_class_attribute(facts.at_class(heir), heir.name, attribute, other, parent.original)


def _mutable(members: Members) -> set[str]:
    """The attributes in the body of a class whose objects can be changed."""
    found: set[str] = set()
    for node in members.node.body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        if (
            isinstance(value, ast.Call)
            and getattr(value.func, "attr", getattr(value.func, "id", "")) in MUTABLE
            or isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))
        ):
            found |= bindings_of(node).binds
    return found


def _is_changed(members: Members, attribute: str, name: str, is_mutable: bool) -> bool:
    """Whether a method sets an attribute of the class by the class's name, or changes its object, where no method gives
    instances one of their own.
    """
    functions = [node for node in members.node.body if isinstance(node, FUNCTIONS)]
    effects = [(first_parameter(node), bindings_of(*node.body).effects) for node in functions]
    if any(f"{name}.{attribute}" in one.binds for _, one in effects):
        return True
    paths = [({f"{holder}.{attribute}" for holder in (first, "cls", name)}, one) for first, one in effects]
    return (
        is_mutable
        and any(one.changes & held for held, one in paths)
        and not any(one.binds & held for held, one in paths)
    )
