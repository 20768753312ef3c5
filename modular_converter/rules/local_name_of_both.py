"""MC211: a local name of an override or of the parent's method that would mean something else in the merged body."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp
from modular_converter.rules._merging import not_mergeable


RULE = Rule(
    code="MC211",
    name="local-name-of-both",
    severity=Severity.ERROR,
    summary="a local name would mean something else where two methods are one",
    explanation="""\
Two methods have two sets of local names, the merged body has one. If your method assigns to `residual` above the call
and reads it below, and the parent's lines assign to a `residual` of theirs, yours is gone. A local name of one method
hides the function of that name which the other calls, an inner function sees the assignments of both, and `locals()`
has the names of both. Where only the values differ, MC321 warns.

Give your name another spelling.
""",
    examples=examples(
        old_mlp("""\
    def forward(self, hidden_states):
        residual = hidden_states
        self.last = residual
"""),
        bad=new_mlp("""\
    def forward(self, hidden_states):
        residual = 2 * hidden_states
        super().forward(hidden_states)
        return residual
"""),
        good=new_mlp("""\
    def forward(self, hidden_states):
        doubled = 2 * hidden_states
        super().forward(hidden_states)
        return doubled
"""),
    ),
    formerly="MC204",
)


def assigned_by_both(location: Location, method: str, name: str) -> Finding:
    """The child reads below the call what it has assigned above it, and the parent's lines assign to the name."""
    cure = f"Give your `{name}` another name."
    return not_mergeable(RULE, location, method, f"the parent's lines assign to a local `{name}` too", cure)


def hides_module(location: Location, method: str, name: str) -> Finding:
    """The parent's lines have a local name that the child's read from the module."""
    reason = f"this line reads the `{name}` of your module, and the parent's lines have a local `{name}`"
    return not_mergeable(RULE, location, method, reason)


def hides_module_of_parent(location: Location, method: str, name: str) -> Finding:
    """The child has a local name that the parent's lines read from their module."""
    reason = f"the parent's lines use a `{name}` of their module, and your method has a local `{name}`"
    return not_mergeable(RULE, location, method, reason, f"Give your `{name}` another name.")


def made_global(location: Location, method: str, name: str) -> Finding:
    """The child declares a name global that is local to the parent's method."""
    reason = f"your method declares `{name}` global, and the parent's lines have a local `{name}`"
    return not_mergeable(RULE, location, method, reason)


def bound_below(location: Location, method: str, name: str) -> Finding:
    """A line of the child reads a name that only the parent's lines bind, below its place."""
    return not_mergeable(RULE, location, method, f"this line would stand above the line that binds `{name}`")


def captured(location: Location, method: str, name: str) -> Finding:
    """An inner function of one method reads a name to which lines of the other assign below it."""
    reason = f"an inner function reads `{name}`, and both the parent's lines and yours assign to it"
    return not_mergeable(RULE, location, method, reason, f"Give your `{name}` another name.")


def sees_all(location: Location, method: str, function: str) -> Finding:
    """A call such as `locals()` sees the names of the method around it."""
    return not_mergeable(
        RULE, location, method, f"`{function}()` would see the local names of both methods", "Write the method out."
    )
