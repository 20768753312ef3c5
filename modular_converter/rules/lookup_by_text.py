"""MC327: generated code that looks names up by their text."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.model.nodes import BY_NAME, parse, walk
from modular_converter.rules._examples import NEW_MLP, examples, modeling_old


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC327",
    name="lookup-by-text",
    severity=Severity.WARNING,
    summary="generated code looks names up by their text",
    explanation="""\
A generated file holds the definitions that its code names. A name in a text that `globals()`, `eval` or `exec` looks
up is not seen: its definition is not carried along, or has another name. The text of an f-string is not renamed
either, so `getattr(self, f"old_{name}")` and `states[f"old_{name}"]` do not find the attributes and keys that were
renamed.

Override the method, and name what it uses in code.
""",
    examples=examples(
        modeling_old("""\
from torch import nn


def scaled(hidden_states):
    return hidden_states * 2


class OldMLP(nn.Module):
    def forward(self, hidden_states):
        function = globals()["scaled"]
        return function(hidden_states)
"""),
        bad=NEW_MLP,
        good="""\
from ..old.modeling_old import OldMLP, scaled


class NewMLP(OldMLP):
    def forward(self, hidden_states):
        return scaled(hidden_states)


__all__ = ["NewMLP"]
""",
    ),
)

LOOKUPS = frozenset({"globals", "eval", "exec"})
KEYED = frozenset({"get", "pop", "setdefault", "startswith", "endswith", "removeprefix", "removesuffix"})
"""The methods of dictionaries and texts whose first argument is a key, or a part of one."""
_LOOKUP = re.compile(rf"\b(?:{'|'.join(sorted(LOOKUPS))})\(")
_F_STRING = re.compile(r"""[fF][rR]?["']""")


def diagnose(location: Location, definition: str, call: str) -> Finding:
    """`call` is the call in the generated `definition`."""
    return Finding(
        RULE,
        location,
        f"`{call}` in the generated `{definition}` looks up a name by its text, but names in texts are neither renamed nor carried along",
        help="Override the method that does this, and name in code what it uses.",
    )


def not_renamed(location: Location, definition: str, code: str) -> Finding:
    """`code` is a key, a comparison or a call with an f-string in the generated `definition`."""
    return Finding(
        RULE,
        location,
        f"`{code}` in the generated `{definition}` has the old name of the model, since the text of an f-string is not renamed",
        help="Override the method that does this, and write the new name where it is meant.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find calls that look up names, and f-strings with the name of a neighbour's model that something is found by."""
    models = {one.model for one in facts.neighbours} - {""}
    for name, definition in facts.generated.items():
        if _may_look_up(definition.text, models):
            mentioned = name if name in facts.definitions else next(iter(facts.definitions), name)
            line = facts.definitions[mentioned].line if mentioned in facts.definitions else 1
            location = facts.at(mentioned, line)
            nodes = walk(definition.members.node if definition.is_class else parse(definition.text))
            yield from (diagnose(location, name, call) for call in dict.fromkeys(_lookups(nodes, models)))
            yield from (not_renamed(location, name, code) for code in dict.fromkeys(_kept_words(nodes, models)))


def _may_look_up(text: str, models: Collection[str]) -> bool:
    """Whether a text needs to be parsed; the plain searches, which come first, take a fiftieth of the time."""
    if any(f"{name}(" in text for name in LOOKUPS) and _LOOKUP.search(text):
        return True
    return any(model in text for model in models) and _F_STRING.search(text) is not None


def _lookups(nodes: Iterable[ast.AST], models: Collection[str]) -> Iterator[str]:
    """The calls that look up names."""
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in LOOKUPS:
                yield f"{node.func.id}(…)"
            elif node.func.id in BY_NAME and len(node.args) > 1 and _names_model(node.args[1], models):
                yield ast.unparse(node)


def _kept_words(nodes: Iterable[ast.AST], models: Collection[str]) -> Iterator[str]:
    """The keys, comparisons and calls on texts with an f-string that names a model."""
    for node in nodes:
        words: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            words = [node.slice]
        elif isinstance(node, ast.Compare):
            words = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in KEYED:
            words = node.args[:1]
        if any(_names_model(word, models) for word in words):
            yield ast.unparse(node)


def _names_model(node: ast.expr, models: Collection[str]) -> bool:
    """Whether the text of an f-string has the name of a model in it."""
    texts = (
        [one.value for one in node.values if isinstance(one, ast.Constant)] if isinstance(node, ast.JoinedStr) else []
    )
    return any(model in str(text) for text in texts for model in models)
