"""MC339: classes with one parent that share an object of its body with inheritance, and have one each as generated."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.model.bindings import FUNCTIONS, bindings_of
from modular_converter.model.overriding import first_parameter
from modular_converter.rules._examples import examples, modeling_old


if TYPE_CHECKING:
    from modular_converter.facts import Facts
    from modular_converter.model.members import Members

HEIRS = """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    {0}


class NewGate(OldMLP):
    {0}


__all__ = ["NewMLP", "NewGate"]
"""

RULE = Rule(
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
    examples=examples(
        modeling_old("""\
class OldMLP:
    cache = {}

    def put(self, key, value):
        self.cache[key] = value
"""),
        bad=HEIRS.format("pass"),
        good=HEIRS.format("cache = {}"),
    ),
)
MUTABLE = frozenset(["Counter", "OrderedDict", "bytearray", "defaultdict", "deque", "dict", "list", "set"])
"""The calls that make an object which can be changed."""


def diagnose(location: Location, name: str, attribute: str, other: str, parent: str) -> Finding:
    """The heirs `name` and `other` of `parent` change its `attribute` in place."""
    return Finding(
        RULE,
        location,
        f"`{attribute}` of `{parent}` is one object for `{other}` and `{name}`, but each generated class has its own",
        help=f"Write `{attribute}` into both classes, or put the object at the top level of the modular file.",
    )


def check(facts: Facts) -> Iterator[Finding]:
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
                yield diagnose(facts.at_class(heir), heir.name, attribute, other, parent.original)


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
