"""MC302: a `super()` call within an expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP


if TYPE_CHECKING:
    from modular_converter.facts.conversion import Facts


RULE = Rule(
    code="MC302",
    name="super-call-not-a-statement",
    severity=Severity.WARNING,
    summary="`super().m()` is part of another statement, so it is not replaced",
    explanation="""\
The parent's code replaces only a statement `super().m(…)` or `return super().m(…)` at the top level of a method. In an
expression, an assignment or a block, or in a method under `if`, the call stays. The generated class does not inherit
from your parent, but from the parent's bases, so the call reaches those: most likely it fails or does something else.

Write the parent's lines out and change what you need, or put the call on a line of its own and your lines around it.
""",
    bad=(
        OLD_MLP,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def forward(self, hidden_states):
        output = super().forward(hidden_states)
        return 2 * output


__all__ = ["NewMLP"]
""",
        ),
    ),
    good=(
        OLD_MLP,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def forward(self, hidden_states):
        hidden_states = 2 * hidden_states
        return super().forward(hidden_states)


__all__ = ["NewMLP"]
""",
        ),
    ),
)


def diagnose(location: Location, method: str, parent: str, *, is_call: bool = True) -> Diagnostic:
    """`parent` is the neighbour class whose `method` the author meant to call, or to read as an attribute."""
    written = f"super().{method}{'()' if is_call else ''}"
    cure = f", or make the call a statement: `super().{method}(…)`" if is_call else ""
    return Diagnostic(
        RULE,
        location,
        f"`{written}` is not a statement of its own; in the generated class it does not reach `{parent}`",
        help=f"Write the lines of `{parent}.{method}` out{cure}.",
    )


def check(facts: Facts) -> Iterator[Diagnostic]:
    """Find calls on `super()` of what the parent binds, but for the call that the converter replaces."""
    for heir, parent in facts.heirs:
        if "super(" not in heir.text:
            continue
        calls = list(heir.members.hidden_super_calls)
        for method in heir.members.methods:
            replaced = method.replaced_call if parent.defines(method.name) else None
            # That of the method itself, where the parent has none, is MC301.
            others = (call for call in method.super_calls if call.node is not replaced)
            calls += [call for call in others if call.method != method.name or parent.defines(call.method)]
        for call in calls:
            if parent.defines(call.method) or call.method in parent.members.names:
                yield diagnose(facts.at_node(heir, call.node), call.method, parent.written)
