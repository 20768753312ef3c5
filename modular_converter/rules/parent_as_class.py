"""MC206: code that needs the parent as a class of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.class_blocks import ClassBlock, Member
from modular_converter.model.nodes import is_super, walk
from modular_converter.rules._examples import OLD_MLP, examples, new_mlp
from modular_converter.rules._merging import not_mergeable


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses

GETMRO = "getmro"
ANCESTRY = ("__subclasses__", "__mro__", "__base__", "__bases__", "mro", GETMRO)
"""Attributes that hold the classes above one, and functions that give them."""
ANNOTATIONS = "__annotations__"
NAMESPACES = ("__dict__", ANNOTATIONS, "vars(")
OWN_CLASS = ("cls", "type(self)", "self.__class__", "__class__")

RULE = Rule(
    code="MC206",
    name="parent-as-class",
    severity=Severity.ERROR,
    summary="code uses the parent as a class of its own, which the generated class does not inherit from",
    explanation="""\
The generated class stands for two: it does not inherit from the parent, whose members it holds. Code that needs the
parent as a class finds none: its name, `super()` as a value, `__class__` in the parent's methods, `__mro__`,
`__bases__` and `__subclasses__`. `vars(cls)` and `cls.__annotations__` would hold the members of both.

Call the parent's method by `super()` in a statement of its own, or write out what you take from it.
""",
    examples=examples(
        OLD_MLP,
        bad=new_mlp("""\
    def forward(self, hidden_states):
        return 2 * OldMLP.forward(self, hidden_states)
"""),
        good=new_mlp("""\
    def forward(self, hidden_states):
        hidden_states = 2 * hidden_states
        return super().forward(hidden_states)
"""),
    ),
    formerly="MC204",
)


def diagnose(location: Location, override: str, reason: str, help: str | None = None) -> Finding:
    """See `not_mergeable`."""
    return not_mergeable(RULE, location, override, reason, help)


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find code that needs the parent as a class of its own."""
    yield from _uses_of_parent(classes.child, classes.base.partition("[")[0])
    for member in classes.kept:
        if _reads_own_class(member):
            reason = "its `__class__` is the parent, but in the generated class it would be your class"
            yield finding_at(classes.child.node, diagnose, min(member.binds, default="__class__"), reason)
        elif name := _replaced_by_name(member, classes.name, classes.child.binds_anew):
            reason = f"it reads the parent's `{name}` by the name of its class, but in the generated class it would read yours"
            yield finding_at(classes.child.node, diagnose, min(member.binds, default=name), reason)
    yield from _looks_at_classes(classes)


def _uses_of_parent(child: ClassBlock, base: str) -> Iterator[ClassFinding]:
    """The parent's name, and `super()` as a value."""
    for member in child.members:
        if "super(" not in member.text and base not in member.text:  # looking at every node of every member takes long
            continue
        nodes = list(walk(member.node))
        objects = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.Call) and is_super(node.func) and id(node) not in objects:
                reason = f"`super()` is used as a value, and in the generated class it would not reach `{base}`"
                cure = "Call the method in a statement of its own: `super().<method>(…)`."
                yield finding_at(node, diagnose, min(member.binds, default="super"), reason, cure)
            elif isinstance(node, ast.Name) and node.id == base:
                reason = f"the generated class does not inherit from `{base}`, nor is it imported"
                cure = "Use `super()` in a statement of its own, or write out what you take from it."
                yield finding_at(node, diagnose, base, reason, cure)


def _looks_at_classes(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Code that inspects its base classes, of which the parent is no longer one, or the members of its class alone."""
    for member in (*classes.child.members, *classes.kept):
        if not any(name in member.text for name in (*ANCESTRY, *NAMESPACES)):
            continue
        nodes = list(walk(member.node))
        looked = {node.attr for node in nodes if isinstance(node, ast.Attribute)} & {*ANCESTRY}
        if any(isinstance(node, ast.Name) and node.id == GETMRO for node in nodes):
            looked.add(GETMRO)
        place = member.node if member in classes.child.members else classes.child.node
        reasons = {
            name: f"`{name}` leads to the parent, from which the generated class does not inherit" for name in looked
        }
        for node in nodes:
            if _is_own_namespace(node, classes.name):
                seen = ast.unparse(node)
                reasons[seen] = (
                    f"`{seen}` has the members of your class alone, but in the generated class the parent's too"
                )
        for name, reason in sorted(reasons.items()):
            method = min(member.binds, default=name)
            yield finding_at(place, diagnose, method, reason, f"Write `{method}` in your class without `{name}`.")


def _is_own_namespace(node: ast.AST, name: str) -> bool:
    """Whether this is the dictionary of a class's members or annotations: `vars(cls)`, `type(self).__dict__`."""
    owner, found = "", ""
    if isinstance(node, ast.Attribute):
        owner, found = ast.unparse(node.value), node.attr
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("vars", "getattr"):
        owner = ast.unparse(node.args[0]) if node.args else ""
        found = str(getattr(node.args[1], "value", "")) if node.func.id == "getattr" and node.args[1:] else "__dict__"
    is_class = owner in OWN_CLASS or owner == name or (owner == "self" and found == ANNOTATIONS)
    return is_class and found in ("__dict__", ANNOTATIONS)


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
