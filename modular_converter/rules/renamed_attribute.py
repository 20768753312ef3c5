"""MC324: a member of the parent under the name that it had before renaming."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.model.bindings import bindings_of
from modular_converter.model.lexer import QUOTED_WORD
from modular_converter.model.nodes import BY_NAME, walk
from modular_converter.rules._examples import examples, new_mlp, old_mlp


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, GeneratedDefinition, Parent
    from modular_converter.model.members import Method


RULE = Rule(
    code="MC324",
    name="renamed-attribute",
    severity=Severity.WARNING,
    summary="a class uses a member of its parent under the name that it had before renaming",
    explanation="""\
Inherited code is renamed: `self.old_proj` of a class of the model `old` becomes `self.new_proj`, and the key
`"old_proj"` becomes `"new_proj"`. Your own code is not renamed. Where it says `self.old_proj`, it reads an attribute
that does not exist, or sets one that inherited code does not read; a method of the old name overrides nothing.

Write the name that the generated class has.
""",
    examples=examples(
        old_mlp("""\
    def __init__(self, config):
        super().__init__()
        self.old_proj = nn.Linear(8, 8)

    def forward(self, hidden_states):
        return self.old_proj(hidden_states)
"""),
        bad=new_mlp("""\
    def reset(self):
        self.old_proj.reset_parameters()
"""),
        good=new_mlp("""\
    def reset(self):
        self.new_proj.reset_parameters()
"""),
    ),
)


_WORD = re.compile(r"\w+")


def diagnose(location: Location, old: str, new: str, parent: str) -> Finding:
    """`new` is the name that the generated class has for the member `old` of `parent`."""
    return Finding(
        RULE,
        location,
        f"`{old}` of `{parent}` is called `{new}` in the generated class",
        help=f"Write `{new}`.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find members of parents, their parameters and keys that the child's own code uses under their old names."""
    for heir, parent in facts.heirs:
        if _has_old_words(facts, heir, parent):
            copies = [one for one in facts.generated.values() if one.copied_from == parent.neighbour.path]
            keys = _kept_texts(heir, parent).union(*(QUOTED_WORD.findall(one.text) for one in copies))
            found = [*_check_members(facts, heir, parent), *_check_texts(facts, heir, parent, keys)]
            found += [*_check_keywords(facts, heir, parent, keys), *_check_elsewhere(facts, heir, parent, copies)]
            yield from {one.location: one for one in reversed(found)}.values()


def _has_old_words(facts: Facts, heir: ClassFacts, parent: Parent) -> bool:
    """Whether any word of a class, except the parent's name in its first line, has another name in inherited code. Most
    classes have none, so their syntax trees need not be walked.
    """
    model = parent.neighbour.model
    if model not in heir.text.lower():
        return False
    words = Counter(word for word in _WORD.findall(heir.text) if model in word.lower())
    words.subtract(base.id for base in heir.members.node.bases if isinstance(base, ast.Name))
    return any(times > 0 and facts.renamed(parent, word) != word for word, times in words.items())


def _check_members(facts: Facts, heir: ClassFacts, parent: Parent) -> Iterator[Finding]:
    """Members used or overridden under their old names.

    A child that deals with both names knows of the renaming (camembert deletes the new one, and sets the old).
    """
    uses = _uses(heir)
    found = {old: node for old, node in uses.items() if facts.renamed(parent, old) not in uses}
    for old, node in (found | _called_on_super(heir)).items():
        new = facts.renamed(parent, old)
        if new != old and _is_of_parent(facts, heir, parent, new) and not _is_of_parent(facts, heir, parent, old):
            yield diagnose(facts.at_node(heir, node), old, new, parent.written)


def _check_texts(facts: Facts, heir: ClassFacts, parent: Parent, keys: Set[str]) -> Iterator[Finding]:
    """Words in quotes, such as keys, that inherited code has under another name. A child with both knows of it."""
    own = dict(reversed([*_texts(heir.members.methods)]))  # the first place of each
    for old, node in own.items():
        new = facts.renamed(parent, old)
        if new != old and new in keys and new not in own and old not in keys:
            yield diagnose(facts.at_node(heir, node), old, new, parent.written)


def _check_keywords(facts: Facts, heir: ClassFacts, parent: Parent, keys: Set[str]) -> Iterator[Finding]:
    """Keywords of calls of inherited methods whose parameters, or keys of `**kwargs`, have other names."""
    for keyword, method in _keywords(heir, parent):
        old, arguments = keyword.arg or "", method.node.args
        new = facts.renamed(parent, old)
        taken = {one.arg for one in (*arguments.args, *arguments.kwonlyargs)}
        if new != old and (new in taken or (arguments.kwarg and new in keys)):
            yield diagnose(facts.at_node(heir, keyword), old, new, f"{parent.written}.{method.name}")


def _check_elsewhere(
    facts: Facts, heir: ClassFacts, parent: Parent, copies: Iterable[GeneratedDefinition]
) -> Iterator[Finding]:
    """Attributes of other objects, keywords and parameters that all inherited code has under another name.

    A parameter counts in a method that overrides one, and in a function that is handed to inherited code.
    """
    own = _words(heir)
    renamed = {old: new for old in own if (new := facts.renamed(parent, old)) != old and new not in own}
    theirs = frozenset(_words(parent)).union(*(one.uses for one in copies)) if renamed else frozenset()
    for old, new in renamed.items():
        if new in theirs and old not in theirs:
            node = own[old]
            yield diagnose(facts.at_node(heir, node), old, new, parent.written)


def _words(owner: ClassFacts | Parent) -> dict[str, ast.AST]:
    """The attributes, keywords and parameters in a class, each with its first place."""
    found: dict[str, ast.AST] = {}
    for node in walk(owner.members.node):
        if isinstance(node, ast.Attribute):
            found.setdefault(node.attr, node)
        elif isinstance(node, (ast.keyword, ast.arg)) and node.arg:
            found.setdefault(node.arg, node)
    return found


def _kept_texts(heir: ClassFacts, parent: Parent) -> frozenset[str]:
    """The words in quotes in the parent's methods that the generated class has, merged ones included."""
    overrides = heir.members.by_name
    kept = (one for one in parent.members.methods if one.name not in overrides or overrides[one.name].replaced_call)
    return frozenset(text for text, _ in _texts(kept))


def _called_on_super(heir: ClassFacts) -> dict[str, ast.AST]:
    """The methods that a class calls as `super().name()`, each with its first place."""
    calls = (call for method in heir.members.methods for call in method.super_calls if call.method != method.name)
    return {call.method: call.node for call in calls}


def _keywords(heir: ClassFacts, parent: Parent) -> Iterator[tuple[ast.keyword, Method]]:
    """The keywords of calls `self.method(…)` of methods that the parent alone defines."""
    methods = parent.members.by_name.keys() - heir.members.by_name.keys()
    for method in heir.members.methods:
        for call in (call for scope in method.bindings.everywhere for call in scope.calls):
            if isinstance(call.func, ast.Attribute) and call.func.attr in methods and method.owns(call.func):
                yield from ((one, parent.members.by_name[call.func.attr]) for one in call.keywords)


def _uses(heir: ClassFacts) -> dict[str, ast.AST]:
    """The names of members that a class binds in its body or uses by `self.name`, each with its first place."""
    found: dict[str, ast.AST] = {}
    for statement in heir.members.node.body:
        for name in bindings_of(statement).local:
            found.setdefault(name, statement)
    for method in heir.members.methods:
        for node in walk(method.node):
            if isinstance(node, ast.Attribute) and method.owns(node):
                found.setdefault(node.attr, node)
            elif isinstance(node, ast.Call) and (name := _attribute_named(node, method.instance)):
                found.setdefault(name, node)
    return found


def _attribute_named(call: ast.Call, instance: str) -> str:
    """The attribute that `getattr(self, "name")` and the like mean; "" for another call."""
    if isinstance(call.func, ast.Name) and call.func.id in BY_NAME and len(call.args) > 1:
        owner, name = call.args[:2]
        if isinstance(owner, ast.Name) and owner.id == instance and isinstance(name, ast.Constant):
            return name.value if isinstance(name.value, str) else ""
    return ""


def _texts(methods: Iterable[Method]) -> Iterator[tuple[str, ast.Constant]]:
    """The words in quotes in some methods, as keys and names of attributes are, each with its place."""
    for method in methods:
        for node in walk(method.node):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                yield node.value, node


def _is_of_parent(facts: Facts, heir: ClassFacts, parent: Parent, name: str) -> bool:
    """Whether the renamed parent, or a base of the generated class in the same file, binds a member."""
    above = (members for members in facts.lineage(heir.name) if members.node.name != heir.name)
    return parent.members.binds(name) or any(members.binds(name) for members in above)
