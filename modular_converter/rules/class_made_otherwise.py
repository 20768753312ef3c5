"""MC208: a class whose creation does something else where it is one instead of two."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.facts import INHERITED_KEYWORDS
from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.bindings import attributes_set
from modular_converter.model.class_blocks import ClassBlock
from modular_converter.rules._examples import NEW_MLP, examples, old_mlp
from modular_converter.rules._merging import WRITE_OUT, fields_of, listed, not_mergeable


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

RULE = Rule(
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
    examples=examples(
        old_mlp("""\
    def __init_subclass__(cls):
        cls.scale = 2

    def forward(self, hidden_states):
        return hidden_states
"""),
        bad=NEW_MLP,
        good="""\
from torch import nn


class NewMLP(nn.Module):
    scale = 2

    def forward(self, hidden_states):
        return hidden_states


__all__ = ["NewMLP"]
""",
    ),
    formerly="MC204",
)


def diagnose(location: Location, override: str, reason: str, help: str | None = None) -> Finding:
    """See `not_mergeable`."""
    return not_mergeable(RULE, location, override, reason, help)


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find what Python does once where it makes one class, and otherwise where it makes two."""
    yield from _slots(classes)
    for check in (_making, _named_tuple, _protocol, _total, _header):
        yield from check(classes.child, classes.parent)


def _slots(classes: TwoClasses) -> Iterator[ClassFinding]:
    """The slots of one class or of both. If one of the bases has no slots, slots forbid nothing."""
    own, inherited = (
        [one for one in block.members if SLOTS in one.binds] for block in (classes.child, classes.parent)
    )
    place = own[0].node if own else classes.child.node
    if own and inherited:
        yield finding_at(
            place,
            diagnose,
            SLOTS,
            "with inheritance they add to the parent's",
            "Write the class out, with the slots of both.",
        )
    elif (own or inherited) and not set(classes.bases) - {"object"}:
        whose = "your" if own else "the parent's"
        reason = f"only {whose} class has slots, and instances of the other take any attribute"
        yield finding_at(place, diagnose, SLOTS, reason, "Write the class out, with or without slots for all.")


def _making(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Members of a class that Python looks at when it makes it."""
    own = child.binds_anew
    if EQUALITY in own and HASH not in own and HASH in parent.binds:
        reason = f"with inheritance, a class that defines `{EQUALITY}` loses the parent's `{HASH}`"
        yield finding_at(child.node, diagnose, HASH, reason, f"Define `{HASH}`, or assign `{HASH} = None`.")
    for member in child.members:
        if isinstance(member.node, ast.Delete) and member.binds & parent.binds:
            reason = "with inheritance, the parent's value is visible again after this `del`"
            yield finding_at(
                member.node,
                diagnose,
                min(member.binds),
                reason,
                "Leave the name out of your class, or assign its value.",
            )
    if any(INIT_SUBCLASS in member.binds for member in parent.members):
        reason = (
            "with inheritance, Python calls the parent's method for your class; the generated class has no such parent"
        )
        yield finding_at(child.node, diagnose, INIT_SUBCLASS, reason, "Write out its effect on your class.")
    for keyword in parent.node.keywords:
        metaclass = ast.unparse(keyword.value)
        if keyword.arg == "metaclass" and metaclass.rpartition(".")[2] not in PLAIN_METACLASSES:
            reason = f"with inheritance, `{metaclass}` makes the parent and then your class; here it would make only one class"
            yield finding_at(child.node, diagnose, "metaclass", reason, WRITE_OUT)


def _named_tuple(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Members that an heir of a named tuple may have, and a named tuple may not."""
    if not _inherits(parent, "NamedTuple"):
        return
    if len(child.bases) > 1:
        yield finding_at(child.node, diagnose, child.node.name, "a named tuple has no further bases", WRITE_OUT)
    for member in child.members:
        name = min(member.binds, default="")
        if member.binds & OF_NAMED_TUPLES:
            reason = "a class that inherits from a named tuple may define it, but a named tuple may not"
            yield finding_at(member.node, diagnose, min(member.binds & OF_NAMED_TUPLES), reason, WRITE_OUT)
        elif isinstance(member.node, ast.AnnAssign):
            reason = "it would become a field of the named tuple; with inheritance it is none"
            yield finding_at(member.node, diagnose, name, reason, WRITE_OUT)
        elif member.is_function and attributes_set(member.function):
            reason = "instances of a named tuple take no attributes, but those of your class do"
            yield finding_at(member.node, diagnose, name, reason, WRITE_OUT)
        elif "super(" in member.text and not member.binds & parent.binds:
            yield finding_at(member.node, diagnose, name, "`super()` does not work in a named tuple", WRITE_OUT)


def _inherits(block: ClassBlock, name: str) -> bool:
    return any(base.partition("[")[0].rpartition(".")[2] == name for base in block.bases)


def _protocol(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """A class that inherits from a protocol without being one."""
    if _inherits(parent, "Protocol") and not _inherits(child, "Protocol"):
        reason = "the parent is a protocol and your class is not, but the generated class would be one"
        cure = "Write the class out, or name `Protocol` behind the parent if it shall be a protocol too."
        yield finding_at(child.node, diagnose, child.node.name, reason, cure)


def _total(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Typed dictionaries: `total` counts for the fields of its own class, and the generated class has only one. A child
    without `total` takes the parent's for its own fields, as in the corpus (muse_glimmer).
    """
    own = _keywords(child).get("total")
    if own is None or own == _keywords(parent).get("total", "True"):
        return
    if inherited := fields_of(parent) - fields_of(child):
        reason = f"`total={own}` would count for the parent's {listed(inherited)} too"
        yield finding_at(child.node, diagnose, child.node.name, reason, WRITE_OUT)


def _header(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Keywords of the parent, which Python hands to `__init_subclass__` or to the metaclass for the parent alone."""
    own = _keywords(child)
    for keyword, value in _keywords(parent).items():
        if keyword not in INHERITED_KEYWORDS and own.get(keyword) != value:
            reason = f"`{keyword}={value}` in its header applies to the parent alone, but the generated class has one header for both"
            repeat = f"Write `{keyword}={value}` in the header of your class too, or write the class out."
            cure = WRITE_OUT if keyword in own else repeat
            yield finding_at(child.node, diagnose, child.node.name, reason, cure)


def _keywords(block: ClassBlock) -> dict[str, str]:
    return {keyword.arg or "**": ast.unparse(keyword.value) for keyword in block.node.keywords}
