"""How Python makes a class: what its decorators, bases and keywords do with the members of both classes."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.facts import INHERITED_KEYWORDS
from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.bindings import attributes_set
from modular_converter.model.class_blocks import ClassBlock
from modular_converter.model.overriding import NO_DECORATORS
from modular_converter.rules._words import WRITE_OUT, Obstacle, fields_of, listed


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses


SLOTS = "__slots__"

INIT_SUBCLASS = "__init_subclass__"

EQUALITY = "__eq__"

HASH = "__hash__"

PLAIN_METACLASSES = ("type", "ABCMeta", "EnumMeta", "EnumType")
"""The metaclasses for which one class with all members equals two classes that inherit."""

OF_NAMED_TUPLES = frozenset(
    ("__new__", "__init__", "__slots__", "__getnewargs__")
    + ("_fields", "_field_defaults", "_field_types", "_make", "_replace", "_asdict", "_source")
)
"""The names that the body of a named tuple may not bind."""

CLASS_MADE_OTHERWISE = Rule(
    code="MC208",
    name="class-made-otherwise",
    severity=Severity.ERROR,
    summary="Python would make the generated class otherwise than the two that inherit",
    explanation="""\
Python does something when it makes a class, and the generated class is made once where inheritance makes two. It
calls `__init_subclass__` of the parent, and a metaclass, for each heir; `__slots__` of both add up; a class with
`__eq__` and without `__hash__` has no hash; named tuples, protocols and typed dictionaries allow in their own body
what an heir may not have, or the reverse; keywords in the header (`total=`, `tag=`) count for the class that has
them.

Write the class out, or do as the message says.
""",
    formerly="MC204",
)


def compare_class_made_otherwise(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find what Python does once where it makes one class, and otherwise where it makes two."""
    checks = (_making, _named_tuple, _protocol, _total, _header)
    found = itertools.chain.from_iterable(check(classes.child, classes.parent) for check in checks)
    yield from (one.finding(CLASS_MADE_OTHERWISE) for one in (*_slots(classes), *found))


def _slots(classes: TwoClasses) -> Iterator[Obstacle]:
    """The slots of one class or of both. If one of the bases has no slots, slots forbid nothing."""
    own, inherited = (
        [one for one in block.members if SLOTS in one.binds] for block in (classes.child, classes.parent)
    )
    place = own[0].node if own else classes.child.node
    if own and inherited:
        yield Obstacle(
            place, SLOTS, "with inheritance they add to the parent's", "Write the class out, with the slots of both."
        )
    elif (own or inherited) and not set(classes.bases) - {"object"}:
        whose = "your" if own else "the parent's"
        reason = f"only {whose} class has slots, and instances of the other take any attribute"
        yield Obstacle(place, SLOTS, reason, "Write the class out, with or without slots for all.")


def _making(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Members of a class that Python looks at when it makes it."""
    own = child.binds_anew
    if EQUALITY in own and HASH not in own and HASH in parent.binds:
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
        yield Obstacle(child.node, INIT_SUBCLASS, reason, "Write out its effect on your class.")
    for keyword in parent.node.keywords:
        metaclass = ast.unparse(keyword.value)
        if keyword.arg == "metaclass" and metaclass.rpartition(".")[2] not in PLAIN_METACLASSES:
            reason = f"with inheritance, `{metaclass}` makes the parent and then your class; here it would make only one class"
            yield Obstacle(child.node, "metaclass", reason, WRITE_OUT)


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


def _header(child: ClassBlock, parent: ClassBlock) -> Iterator[Obstacle]:
    """Keywords of the parent, which Python hands to `__init_subclass__` or to the metaclass for the parent alone."""
    own = _keywords(child)
    for keyword, value in _keywords(parent).items():
        if keyword not in INHERITED_KEYWORDS and own.get(keyword) != value:
            reason = f"`{keyword}={value}` in its header applies to the parent alone, but the generated class has one header for both"
            repeat = f"Write `{keyword}={value}` in the header of your class too, or write the class out."
            cure = WRITE_OUT if keyword in own else repeat
            yield Obstacle(child.node, child.node.name, reason, cure)


def _keywords(block: ClassBlock) -> dict[str, str]:
    return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in block.node.keywords}


KEYWORD_ONLY, MARKER = "kw_only", "KW_ONLY"

COMPARED, FROZEN = "order", "frozen"

MADE = ("init", "repr", "eq", "match_args")
"""The options of a dataclass that are on by default; if the child turns one off, the parent's methods stay."""

MAKE_METHODS = ("total_ordering",)
"""The decorators of classes, beside `@dataclass`, from which the class has methods that an heir needs."""

CLASS_DECORATORS = Rule(
    code="MC334",
    name="class-decorators",
    severity=Severity.WARNING,
    summary="a decorator of the class counts for both classes, or only for one",
    explanation="""\
`@dataclass` of your class counts for the parent's fields too, and the parent's options (`kw_only`, `order`, `frozen`)
are gone. Where your class has decorators, the parent's are gone altogether, and with them the methods that
`@total_ordering` has made.

Repeat the parent's decorators and options, or write the class out.
""",
    formerly="MC323",
)


def decorator_differs(location: Location, effect: str, cure: str) -> Finding:
    """`effect` describes how the one `@dataclass` of the generated class differs from two."""
    return Finding(CLASS_DECORATORS, location, f"`@dataclass` {effect}, which inheritance would not do", help=cure)


def decorator_replaced(location: Location, decorator: str) -> Finding:
    """The child's class has decorators of its own, and the methods that one of the parent's made are gone."""
    return Finding(
        CLASS_DECORATORS,
        location,
        f"`@{decorator}` of the parent is replaced by your decorators, and what it makes is gone",
        help=f"Write `@{decorator}` above your class too.",
    )


def compare_class_decorators(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find decorators of the two classes that one class cannot combine."""
    yield from _dataclasses(classes.child, classes.parent)
    own = [ast.unparse(one) for one in classes.child.node.decorator_list]
    for decorator in classes.parent.node.decorator_list if own else ():
        text = ast.unparse(decorator)
        if text.rpartition(".")[2] in MAKE_METHODS and text not in own:
            yield finding_at(classes.child.node, decorator_replaced, text)


def _dataclasses(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """The decorator `@dataclass`: that of the child counts for the fields of both.

    A child without decorators has the parent's, and its annotations become fields, as in the corpus (aria).
    """
    own, theirs = _options(child), _options(parent)
    if own is None and theirs is None:
        return
    fields, inherited = fields_of(child), fields_of(parent)
    place = child.node
    if theirs is None:
        if own is not None and inherited:
            cure = "Write the class out, and annotate only its fields."
            yield finding_at(place, decorator_differs, f"makes fields of the parent's {listed(inherited)}", cure)
    elif own is None:
        if inherited and child.node.decorator_list:
            cure = WRITE_OUT if _has_no_decorators(child) else "Add `@dataclass` to your decorators."
            yield finding_at(place, decorator_differs, "of the parent is replaced by your decorators", cure)
    else:
        yield from _check_options(child, own, theirs, fields, inherited, _has_marker(parent))


def _has_no_decorators(child: ClassBlock) -> bool:
    return [ast.unparse(one) for one in child.node.decorator_list] == [NO_DECORATORS]


def _check_options(
    child: ClassBlock,
    own: dict[str, str],
    theirs: dict[str, str],
    fields: frozenset[str],
    inherited: frozenset[str],
    has_marker: bool,
) -> Iterator[ClassFinding]:
    """The options of two dataclasses that one dataclass cannot combine."""
    if own.get(KEYWORD_ONLY, "False") != theirs.get(KEYWORD_ONLY, "False") and inherited - fields:
        value = own.get(KEYWORD_ONLY, "False")
        cure = f"Write `@dataclass({KEYWORD_ONLY}={theirs.get(KEYWORD_ONLY, 'False')})`, or write the class out."
        yield finding_at(
            child.node, decorator_differs, f"applies `{KEYWORD_ONLY}={value}` to the parent's fields too", cure
        )
    elif has_marker and fields - inherited:
        cure = WRITE_OUT
        yield finding_at(child.node, decorator_differs, f"applies the parent's `{MARKER}` to your fields too", cure)
    for option in (COMPARED, FROZEN):
        if theirs.get(option, "False") != "False" and own.get(option, "False") == "False":
            cure = f"Write `@dataclass({option}={theirs[option]})`."
            yield finding_at(child.node, decorator_differs, f"drops the parent's `{option}={theirs[option]}`", cure)
    for option in MADE:
        if own.get(option, "True") == "False" and theirs.get(option, "True") != "False":
            cure = f"Leave `{option}=False` out, or write the method out."
            yield finding_at(
                child.node, decorator_differs, f"has `{option}=False`, and drops what the parent's makes", cure
            )


def _options(block: ClassBlock) -> dict[str, str] | None:
    """The options of a class's `@dataclass`; None without one."""
    for decorator in block.node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] == "dataclass":
            keywords = decorator.keywords if isinstance(decorator, ast.Call) else ()
            return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in keywords}
    return None


def _has_marker(block: ClassBlock) -> bool:
    """Whether a field of type `KW_ONLY` divides the fields of a dataclass."""
    return any(
        isinstance(member.node, ast.AnnAssign) and ast.unparse(member.node.annotation).endswith(MARKER)
        for member in block.members
    )
