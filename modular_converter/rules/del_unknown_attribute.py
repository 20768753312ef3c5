"""MC303: `del self.x` of an attribute that the parent does not assign."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Fix, Location, Rule, Severity, did_you_mean, split_lines
from modular_converter.model.nodes import walk
from modular_converter.rules._edits import remove_statement, subject
from modular_converter.rules._examples import examples, new_mlp, old_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts, GeneratedDefinition
    from modular_converter.model.members import Method


RULE = Rule(
    code="MC303",
    name="del-unknown-attribute",
    severity=Severity.WARNING,
    summary="`del self.x` names an attribute that the parent does not assign",
    explanation="""\
After a `super()` call, `del self.x` takes the parent's statement `self.x = …` out of the body that replaces the call.
The parent's method has no such statement at its top level, so nothing is taken out, and the `del` is dropped.

Correct the name. Where a base of the parent sets the attribute, or the parent's method sets it within an `if` or a
loop or together with others, the `del` stays in the generated method, and there is no finding.
""",
    examples=examples(
        old_mlp("""\
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(8, 8)
        self.dropout = nn.Dropout()

    def forward(self, hidden_states):
        return self.up_proj(hidden_states)
"""),
        bad=new_mlp("""\
    def __init__(self, config):
        super().__init__(config)
        del self.drop_out
"""),
        good=new_mlp("""\
    def __init__(self, config):
        super().__init__(config)
        del self.dropout
"""),
    ),
)


def diagnose(
    location: Location, attribute: str, method: str, parent: str, *, candidates: Iterable[str] = ()
) -> Finding:
    """`candidates` are the attributes that `parent.method` assigns at its top level."""
    return Finding(
        RULE,
        location,
        f"`del self.{attribute}` removes nothing: `{parent}.{method}` does not assign it",
        help=did_you_mean(attribute, candidates) + "Correct the name, or drop the line.",
    )


def has_no_effect(location: Location, attribute: str) -> Finding:
    """An assignment of the same method, above the `del`, stays."""
    return Finding(
        RULE,
        location,
        f"`del self.{attribute}` takes the parent's assignment away, but yours above it stays",
        help=f"Drop your assignment to `self.{attribute}`, or the `del`.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find `del self.x` behind a replaced `super()` call whose method in the parent does not assign `self.x`.

    A `del` that the generated method still has removes the attribute of a base, or one that is set in a block.
    """
    for heir, parent in facts.heirs:
        for method in heir.members.methods if "del " in heir.text else ():
            inherited = parent.members.by_name.get(method.name)
            if inherited is None:
                continue
            assigned = inherited.assigned
            for target in method.deletions:
                if target.attr not in assigned and not _is_deleted(target, facts.generated[heir.name], method):
                    place = facts.at_node(heir, target)
                    yield diagnose(place, target.attr, method.name, parent.written, candidates=assigned)
                elif _is_set_before(target, method) and not _is_deleted(target, facts.generated[heir.name], method):
                    yield has_no_effect(facts.at_node(heir, target), target.attr)


def _is_set_before(target: ast.Attribute, method: Method) -> bool:
    """Whether a method assigns an attribute at its top level, above the line that deletes it."""
    above = (node for node in method.node.body if node.lineno < target.lineno)
    return any(target.attr in method.assigned_by(node) for node in above)


def _is_deleted(target: ast.Attribute, generated: GeneratedDefinition, method: Method) -> bool:
    """Whether the generated method still has a `del` of an attribute."""
    found = generated.members.by_name.get(method.name)
    nodes = walk(found.node) if found is not None else ()
    removed = {ast.unparse(one) for node in nodes if isinstance(node, ast.Delete) for one in node.targets}
    return ast.unparse(target) in removed


def fix(text: str, finding: Finding) -> Fix | None:
    """Drop a `del` that removes nothing, unless its name is only misspelt."""
    if "removes nothing" not in finding.message or finding.help.startswith("Did you mean"):
        return None
    line = split_lines(text)[finding.location.line - 1]
    is_alone = line.partition("#")[0].strip() == f"del {subject(finding).removeprefix('del ')}"
    return remove_statement(text, finding, "Remove the `del`") if is_alone else None
