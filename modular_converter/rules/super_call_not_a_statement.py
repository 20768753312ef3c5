"""MC302: a `super()` call within an expression."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.members import super_method
from modular_converter.model.nodes import super_attribute, walk
from modular_converter.rules._examples import OLD_MLP, examples, new_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts, TwoClasses
    from modular_converter.model.members import Method, SuperCall


SUPER_OF_A_CLASS = re.compile(r"super\s*\(\s*[^)\s]")

RULE = Rule(
    code="MC302",
    name="super-call-not-a-statement",
    severity=Severity.WARNING,
    summary="`super().m()` is part of another statement, so it is not replaced",
    explanation="""\
The parent's code replaces only a statement `super().m(…)` or `return super().m(…)` at the top level of the method `m`.
In an expression, an assignment or a block, in a method under `if`, or in another method, the call stays. The generated
class does not inherit from your parent, but from the parent's bases, so the call reaches those: most likely it fails
or does something else.

Write the parent's lines out and change what you need, or put the call on a line of its own and your lines around it.
In another method `self.m(…)` reaches the parent's lines, where your class has no `m`.
""",
    examples=examples(
        OLD_MLP,
        bad=new_mlp("""\
    def forward(self, hidden_states):
        output = super().forward(hidden_states)
        return 2 * output
"""),
        good=new_mlp("""\
    def forward(self, hidden_states):
        hidden_states = 2 * hidden_states
        return super().forward(hidden_states)
"""),
    ),
)


def diagnose(location: Location, method: str, parent: str, *, is_call: bool = True) -> Finding:
    """`parent` is the neighbour class whose `method` the author meant to call, or to read as an attribute."""
    written = f"super().{method}{'()' if is_call else ''}"
    cure = f", or make the call a statement: `super().{method}(…)`" if is_call else ""
    return Finding(
        RULE,
        location,
        f"`{written}` is not a statement of its own; in the generated class it does not reach `{parent}`",
        help=f"Write the lines of `{parent}.{method}` out{cure}.",
    )


def of_another_method(location: Location, method: str, parent: str, own: str) -> Finding:
    """A call of `method` in a method of another name; `own` calls it on the instance, "" where the child replaces it."""
    cure = f"Write `{own}(…)`, which your class does not override, or write" if own else "Write"
    return Finding(
        RULE,
        location,
        f"`super().{method}()` is in another method than `{method}`; in the generated class it does not reach `{parent}`",
        help=f"{cure} the lines of `{parent}.{method}` out.",
    )


def skipped(location: Location, written: str, method: str, own: str, parent: str) -> Finding:
    """A call that leaves out `own`, a class of the modular file, to reach `method` of its `parent`."""
    return Finding(
        RULE,
        location,
        f"`{written}` skips `{own}`, and with it `{parent}`, whose lines the generated `{own}` has",
        help=f"Write the lines of `{parent}.{method}` out.",
    )


def _skips(facts: Facts) -> Iterator[Finding]:
    """Calls `super(EmuMLP, self).f()` in another class than `EmuMLP`, an heir whose parent has `f`."""
    parents = {heir.name: parent for heir, parent in facts.heirs}
    for one in facts.classes.values():
        for node in walk(one.members.node) if parents and SUPER_OF_A_CLASS.search(one.text) else ():
            method = super_method(node)
            call = getattr(getattr(node, "func", None), "value", None)
            if not (method and isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Name)):
                continue
            own = call.args[0].id
            parent = parents.get(own) if own != one.name else None
            if parent is not None and (parent.defines(method) or method in parent.members.names):
                yield skipped(facts.at_node(one, node), f"{ast.unparse(call)}.{method}()", method, own, parent.written)


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find attributes that are read from `super()` without a call, and that the parent binds."""
    for member in classes.child.members:
        nodes = walk(member.node) if "super(" in member.text else []
        calls = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            name = super_attribute(node)
            if name in classes.parent.binds and id(node) not in calls:
                yield finding_at(node, diagnose, name, classes.base.partition("[")[0], is_call=False)


def check(facts: Facts) -> Iterator[Finding]:
    """Find calls on `super()` of what the parent binds, but for the call that the converter replaces."""
    yield from _skips(facts)
    for heir, parent in facts.heirs:
        if "super(" not in heir.text:
            continue
        calls: list[tuple[SuperCall, Method | None]] = [(call, None) for call in heir.members.hidden_super_calls]
        for method in heir.members.methods:
            replaced = method.replaced_call if parent.defines(method.name) else None
            # That of the method itself, where the parent has none, is MC301.
            others = (call for call in method.super_calls if call.node is not replaced)
            calls += [(call, method) for call in others if call.method != method.name or parent.defines(call.method)]
        for call, caller in calls:
            if not (parent.defines(call.method) or call.method in parent.members.names):
                continue
            place = facts.at_node(heir, call.node)
            if caller is None or caller.name == call.method:
                yield diagnose(place, call.method, parent.written)
            else:
                instance = next((one.arg for one in (*caller.node.args.posonlyargs, *caller.node.args.args)), "self")
                own = "" if heir.members.binds(call.method) else f"{instance}.{call.method}"
                yield of_another_method(place, call.method, parent.written, own)
