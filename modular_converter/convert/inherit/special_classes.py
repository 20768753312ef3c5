"""Classes whose creation is special in Python: metaclasses, keywords, named tuples, protocols, dataclasses. For them,
one class with the members of both can differ from a class that inherits from the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from modular_converter.convert.inherit.bases import INHERITED_KEYWORDS
from modular_converter.convert.inherit.class_findings import ClassFinding, finding_at, not_mergeable
from modular_converter.convert.inherit.decorators import NO_DECORATORS
from modular_converter.convert.inherit.looks_at_classes import check_looks_at_classes
from modular_converter.convert.inherit.members import ClassBlock, Member
from modular_converter.model.bindings import attributes_set
from modular_converter.model.nodes import is_super, walk
from modular_converter.rules.half_overridden import decorator_differs, decorator_replaced


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
KEYWORD_ONLY, MARKER = "kw_only", "KW_ONLY"
COMPARED, FROZEN = "order", "frozen"
MADE = ("init", "repr", "eq", "match_args")
"""The options of a dataclass that are on by default; if the child turns one off, the parent's methods stay."""
MAKE_METHODS = ("total_ordering",)
"""The decorators of classes, beside `@dataclass`, from which the class has methods that an heir needs."""
WRITE_OUT = "Write the class out."


def check_making(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Effects of the creation of two classes, or of the cell `__class__`, that one class does not have."""
    own = child.binds_anew
    if EQUALITY in own and HASH not in own and HASH in parent.binds:
        reason = f"with inheritance, a class that defines `{EQUALITY}` loses the parent's `{HASH}`"
        yield not_mergeable(child.node, HASH, reason, f"Define `{HASH}`, or assign `{HASH} = None`.")
    for member in child.members:
        if isinstance(member.node, ast.Delete) and member.binds & parent.binds:
            reason = "with inheritance, the parent's value is visible again after this `del`"
            yield not_mergeable(
                member.node, min(member.binds), reason, "Leave the name out of your class, or assign its value."
            )
    for member in parent.members:
        if INIT_SUBCLASS in member.binds:
            reason = "with inheritance, Python calls the parent's method for your class; the generated class has no such parent"
            yield not_mergeable(child.node, INIT_SUBCLASS, reason, "Write out its effect on your class.")
        elif _reads_own_class(member) and not member.binds <= own:
            reason = "its `__class__` is the parent, but in the generated class it would be your class"
            yield not_mergeable(child.node, min(member.binds, default="__class__"), reason)
        elif not member.binds <= own and (name := _replaced_by_name(member, parent.node.name, own)):
            reason = f"it reads the parent's `{name}` by the name of its class, but in the generated class it would read yours"
            yield not_mergeable(child.node, min(member.binds, default=name), reason)
    for keyword in parent.node.keywords:
        metaclass = ast.unparse(keyword.value)
        if keyword.arg == "metaclass" and metaclass.rpartition(".")[2] not in PLAIN_METACLASSES:
            reason = f"with inheritance, `{metaclass}` makes the parent and then your class; here it would make only one class"
            yield not_mergeable(child.node, "metaclass", reason, "Write the class out.")


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


def check_named_tuple(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Members that an heir of a named tuple may have, and a named tuple may not."""
    if not _inherits(parent, "NamedTuple"):
        return
    if len(child.bases) > 1:
        yield not_mergeable(child.node, child.node.name, "a named tuple has no further bases", WRITE_OUT)
    for member in child.members:
        name = min(member.binds, default="")
        if member.binds & OF_NAMED_TUPLES:
            reason = "a class that inherits from a named tuple may define it, but a named tuple may not"
            yield not_mergeable(member.node, min(member.binds & OF_NAMED_TUPLES), reason, WRITE_OUT)
        elif isinstance(member.node, ast.AnnAssign):
            reason = "it would become a field of the named tuple; with inheritance it is none"
            yield not_mergeable(member.node, name, reason, WRITE_OUT)
        elif member.is_function and attributes_set(member.function):
            reason = "instances of a named tuple take no attributes, but those of your class do"
            yield not_mergeable(member.node, name, reason, WRITE_OUT)
        elif "super(" in member.text and not member.binds & parent.binds:
            yield not_mergeable(member.node, name, "`super()` does not work in a named tuple", WRITE_OUT)


def _inherits(block: ClassBlock, name: str) -> bool:
    return any(base.partition("[")[0].rpartition(".")[2] == name for base in block.bases)


def check_protocol(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """A class that inherits from a protocol without being one."""
    if _inherits(parent, "Protocol") and not _inherits(child, "Protocol"):
        reason = "the parent is a protocol and your class is not, but the generated class would be one"
        cure = "Write the class out, or name `Protocol` behind the parent if it shall be a protocol too."
        yield not_mergeable(child.node, child.node.name, reason, cure)


def check_total(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Typed dictionaries: `total` counts for the fields of its own class, and the generated class has only one. A child
    without `total` takes the parent's for its own fields, as in the corpus (muse_glimmer).
    """
    own = _keywords(child).get("total")
    if own is None or own == _keywords(parent).get("total", "True"):
        return
    if inherited := _fields(parent) - _fields(child):
        reason = f"`total={own}` would count for the parent's {_listed(inherited)} too"
        yield not_mergeable(child.node, child.node.name, reason, WRITE_OUT)


def check_keywords(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Keywords of the parent, which Python hands to `__init_subclass__` or to the metaclass for the parent alone."""
    own = _keywords(child)
    for keyword, value in _keywords(parent).items():
        if keyword not in INHERITED_KEYWORDS and own.get(keyword) != value:
            reason = f"`{keyword}={value}` in its header applies to the parent alone, but the generated class has one header for both"
            repeat = f"Write `{keyword}={value}` in the header of your class too, or write the class out."
            cure = WRITE_OUT if keyword in own else repeat
            yield not_mergeable(child.node, child.node.name, reason, cure)


def _keywords(block: ClassBlock) -> dict[str, str]:
    return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in block.node.keywords}


def check_dataclass(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """The decorator `@dataclass`: that of the child counts for the fields of both.

    A child without decorators has the parent's, and its annotations become fields, as in the corpus (aria).
    """
    own, theirs = _options(child), _options(parent)
    if own is None and theirs is None:
        return
    fields, inherited = _fields(child), _fields(parent)
    place = child.node
    if theirs is None:
        if own is not None and inherited:
            cure = "Write the class out, and annotate only its fields."
            yield finding_at(place, decorator_differs, f"makes fields of the parent's {_listed(inherited)}", cure)
    elif own is None:
        if inherited and child.node.decorator_list:
            cure = "Write the class out." if _has_no_decorators(child) else "Add `@dataclass` to your decorators."
            yield finding_at(place, decorator_differs, "of the parent is replaced by your decorators", cure)
    else:
        yield from _check_options(child, own, theirs, fields, inherited, _has_marker(parent))


def check_replaced_decorators(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Decorators of the parent that give it methods, and that those of the child replace."""
    own = [ast.unparse(one) for one in child.node.decorator_list]
    for decorator in parent.node.decorator_list if own else ():
        text = ast.unparse(decorator)
        if text.rpartition(".")[2] in MAKE_METHODS and text not in own:
            yield finding_at(child.node, decorator_replaced, text)


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
        cure = "Write the class out."
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


def _fields(block: ClassBlock) -> frozenset[str]:
    """The annotated names of a class, except class variables."""
    return frozenset(
        node.target.id
        for node in (member.node for member in block.members)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if not ast.unparse(node.annotation).strip("'\"").rpartition("typing.")[2].startswith("ClassVar")
    )


def _has_marker(block: ClassBlock) -> bool:
    """Whether a field of type `KW_ONLY` divides the fields of a dataclass."""
    return any(
        isinstance(member.node, ast.AnnAssign) and ast.unparse(member.node.annotation).endswith(MARKER)
        for member in block.members
    )


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


CHECKS = (
    check_making,
    check_looks_at_classes,
    check_named_tuple,
    check_protocol,
    check_total,
    check_keywords,
    check_dataclass,
    check_replaced_decorators,
)


def check_special(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """All of the above."""
    for check in CHECKS:
        yield from check(child, parent)
