"""MC204: an override that cannot be merged with the parent's code."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp
from modular_converter.rules._merging import not_mergeable


RULE = Rule(
    code="MC204",
    name="override-not-mergeable",
    severity=Severity.ERROR,
    summary="an override cannot be merged with the parent's code without a change of its meaning",
    explanation="""\
The generated class has one body where inheritance has two methods, one of which calls the other. Some pairs cannot be
written as one body: lines behind `super().f()` that the parent's `return` would skip; an `async` method of a plain
one; a generator as a statement; an assignment that would take the place of several which build on each other.

Write the parent's lines out in the override, and change what you need. Other obstacles have codes of their own: MC206
(the parent as a class), MC207 (the order of bases), MC208 (how the class is made), MC209 (names in the class), MC210
(parameters without a value), MC211 (local names of both methods).
""",
    examples=examples(
        old_mlp("""\
    def forward(self, hidden_states):
        if hidden_states is None:
            return None
        return 2 * hidden_states
"""),
        bad=new_mlp("""\
    def forward(self, hidden_states):
        super().forward(hidden_states)
        self.calls += 1
"""),
        good=new_mlp("""\
    def forward(self, hidden_states):
        self.calls += 1
        return super().forward(hidden_states)
"""),
    ),
)


def returns_before(location: Location, method: str) -> Finding:
    """The parent's `return` within a block skips a line of the child."""
    return not_mergeable(RULE, location, method, f"the parent's `{method}` may return before this statement")


def assigned_often(location: Location, method: str, target: str, times: int) -> Finding:
    """The child's assignment reads what it assigns to, and would take the place of several."""
    reason = f"the parent assigns `{target}` {times} times, and each would become this statement"
    return not_mergeable(RULE, location, method, reason)


def other_kind(location: Location, method: str, *, parent_waits: bool) -> Finding:
    """One of the two methods is a coroutine, and the other is not, or does not wait for it."""
    kind = "a coroutine" if parent_waits else "no coroutine"
    cure = f"Write `async def {method}` and `await super().{method}(…)` where the parent's is a coroutine."
    return not_mergeable(RULE, location, method, f"the parent's `{method}` is {kind}", cure)


def generator(location: Location, method: str, *, of_parent: bool) -> Finding:
    """One of the two methods yields, and the call needs the object that it returns."""
    reason = f"the parent's `{method}` is a generator"
    if not of_parent:
        reason = f"it is a generator, but the parent's `{method}` is not"
    return not_mergeable(RULE, location, method, reason)


def too_deep(location: Location, method: str) -> Finding:
    """An expression that Python parses, but whose tree is too deep to be written out recursively."""
    reason = "an expression of it, or of the parent's method, is nested too deeply"
    return not_mergeable(
        RULE, location, method, reason, "Write the expression as several statements, each with a part of it."
    )


def unknown_syntax(location: Location, method: str, message: str) -> Finding:
    """Syntax that this Python parses and libcst does not."""
    reason = f"libcst does not know its syntax, or that of the parent's method ({message})"
    cure = "Write it in the syntax of an earlier Python, or install a newer libcst."
    return not_mergeable(RULE, location, method, reason, cure)
