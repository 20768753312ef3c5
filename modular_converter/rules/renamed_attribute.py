"""MC324: a member of the parent under the name that it had before renaming."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity
from modular_converter.facts.nodes import walk


if TYPE_CHECKING:
    from modular_converter.facts.conversion import ClassFacts, Facts, Parent
    from modular_converter.facts.members import Method


NEIGHBOUR = (
    "models/old/modeling_old.py",
    """\
from torch import nn


class OldMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.old_proj = nn.Linear(8, 8)

    def forward(self, hidden_states):
        return self.old_proj(hidden_states)
""",
)

RULE = Rule(
    code="MC324",
    name="renamed-attribute",
    severity=Severity.WARNING,
    summary="a class uses a member of its parent under the name that it had before renaming",
    explanation="""\
Inherited code is renamed: `self.old_proj` of a class of the model `old` becomes `self.new_proj`. Your own code is not
renamed. Where it says `self.old_proj`, it reads an attribute that does not exist, or sets one that inherited code does
not read; a method of the old name overrides nothing.

Write the name that the generated class has.
""",
    bad=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def reset(self):
        self.old_proj.reset_parameters()


__all__ = ["NewMLP"]
""",
        ),
    ),
    good=(
        NEIGHBOUR,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def reset(self):
        self.new_proj.reset_parameters()


__all__ = ["NewMLP"]
""",
        ),
    ),
)


def diagnose(location: Location, old: str, new: str, parent: str) -> Diagnostic:
    """`new` is the name that the generated class has for the member `old` of `parent`."""
    return Diagnostic(
        RULE,
        location,
        f"`{old}` of `{parent}` is called `{new}` in the generated class",
        help=f"Write `{new}`.",
    )


def check(facts: Facts) -> Iterator[Diagnostic]:
    """Find members of parents that the child's own code uses or overrides under their old names.

    A child that deals with both names knows of the renaming (camembert deletes the new one, and sets the old).
    """
    for heir, parent in facts.heirs:
        if parent.neighbour.model not in heir.text.lower():
            continue
        uses = _uses(heir)
        found = {old: node for old, node in uses.items() if facts.renamed(parent, old) not in uses}
        for old, node in (found | _called_on_super(heir)).items():
            new = facts.renamed(parent, old)
            if new != old and _is_of_parent(facts, heir, parent, new) and not _is_of_parent(facts, heir, parent, old):
                yield diagnose(facts.at_node(heir, node), old, new, parent.written)
        for keyword, method in _keywords(heir, parent):
            old, arguments = keyword.arg or "", method.node.args
            new = facts.renamed(parent, old)
            if new != old and new in {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}:
                yield diagnose(facts.at_node(heir, keyword), old, new, f"{parent.written}.{method.name}")


def _called_on_super(heir: ClassFacts) -> dict[str, ast.AST]:
    """The methods that a class calls as `super().name()`, each with its first place."""
    calls = (call for method in heir.members.methods for call in method.super_calls if call.method != method.name)
    return {call.method: call.node for call in calls}


def _keywords(heir: ClassFacts, parent: Parent) -> Iterator[tuple[ast.keyword, Method]]:
    """The keywords of calls `self.method(…)` of methods that the parent alone defines."""
    methods = parent.members.by_name.keys() - heir.members.by_name.keys()
    for node in walk(heir.members.node):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods):
            continue
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "self":
            yield from ((one, parent.members.by_name[node.func.attr]) for one in node.keywords)


def _uses(heir: ClassFacts) -> dict[str, ast.AST]:
    """The names of members that a class binds in its body or uses by `self.name`, each with its first place."""
    found: dict[str, ast.AST] = {}
    for statement in heir.members.node.body:
        for name in (getattr(statement, "name", ""), *(getattr(one, "id", "") for one in _targets(statement))):
            found.setdefault(name, statement)
        for node in walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                found.setdefault(node.attr, node)
    found.pop("", None)
    return found


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


def _is_of_parent(facts: Facts, heir: ClassFacts, parent: Parent, name: str) -> bool:
    """Whether the renamed parent, or a base of the generated class in the same file, binds a member."""
    above = (members for members in facts.lineage(heir.name) if members.node.name != heir.name)
    return parent.members.binds(name) or any(members.binds(name) for members in above)
