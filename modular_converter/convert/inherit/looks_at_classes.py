"""Code that looks at classes and not only at members: at the bases of its class, or at the members of its class alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.convert.inherit.class_findings import ClassFinding, not_mergeable
from modular_converter.convert.inherit.members import ClassBlock
from modular_converter.model.nodes import walk


GETMRO = "getmro"
ANCESTRY = ("__subclasses__", "__mro__", "__base__", "__bases__", "mro", GETMRO)
"""Attributes that hold the classes above one, and functions that give them."""
ANNOTATIONS = "__annotations__"
NAMESPACES = ("__dict__", ANNOTATIONS, "vars(")
OWN_CLASS = ("cls", "type(self)", "self.__class__", "__class__")


def check_looks_at_classes(child: ClassBlock, parent: ClassBlock) -> Iterator[ClassFinding]:
    """Code that inspects its base classes, of which the parent is no longer one, or the members of its class alone."""
    own = child.binds_anew
    for member in (*child.members, *(one for one in parent.members if not one.binds <= own)):
        if not any(name in member.text for name in (*ANCESTRY, *NAMESPACES)):
            continue
        nodes = list(walk(member.node))
        looked = {node.attr for node in nodes if isinstance(node, ast.Attribute)} & {*ANCESTRY}
        if any(isinstance(node, ast.Name) and node.id == GETMRO for node in nodes):
            looked.add(GETMRO)
        place = member.node if member in child.members else child.node
        reasons = {
            name: f"`{name}` leads to the parent, from which the generated class does not inherit" for name in looked
        }
        for node in nodes:
            if _is_own_namespace(node, child.node.name):
                seen = ast.unparse(node)
                reasons[seen] = (
                    f"`{seen}` has the members of your class alone, but in the generated class the parent's too"
                )
        for name, reason in sorted(reasons.items()):
            method = min(member.binds, default=name)
            yield not_mergeable(place, method, reason, f"Write `{method}` in your class without `{name}`.")


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
