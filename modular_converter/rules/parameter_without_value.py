"""MC210: a parameter of the parent's method for which the override has no value."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp
from modular_converter.rules._merging import not_mergeable


RULE = Rule(
    code="MC210",
    name="parameter-without-value",
    severity=Severity.ERROR,
    summary="the parent's lines read a parameter of their method for which the override has no value",
    explanation="""\
The parent's lines stand in the override, in place of the `super()` call, and read the parameters of their method. An
argument of the call becomes an assignment above them. Where neither a parameter of the override nor an argument has
the name, or where the value is in an unpacked argument (`*args`), there is nothing to read. With `**super_kwargs`,
the parent's parameters and yours have to be a signature together.

Pass each argument by itself, or take the parameter into your signature.
""",
    examples=examples(
        old_mlp("""\
    def forward(self, hidden_states):
        return 2 * hidden_states
"""),
        bad=new_mlp("""\
    def forward(self, *arguments):
        return super().forward(*arguments)
"""),
        good=new_mlp("""\
    def forward(self, hidden_states):
        hidden_states = hidden_states + 1
        return super().forward(hidden_states)
"""),
    ),
    formerly="MC204",
)


def no_value(location: Location, method: str, parameter: str) -> Finding:
    """The override has neither a name nor an argument for the parameter."""
    reason = f"the parent's lines read its parameter `{parameter}`, which has no value here"
    return not_mergeable(
        RULE, location, method, reason, f"Add `{parameter}` to the parameters, or assign it above the call."
    )


def unpacked(location: Location, method: str, parameter: str) -> Finding:
    """The value comes from `*args` or `**kwargs` of the call."""
    reason = f"the parent's lines read its parameter `{parameter}`, whose value is in an unpacked argument of the call"
    cure = (
        f"Write `**super_kwargs` in both places, which stands for the parent's parameters, or pass each argument by "
        f"itself in `super().{method}(…)`."
    )
    return not_mergeable(RULE, location, method, reason, cure)


def bad_signature(location: Location, method: str, error: Exception) -> Finding:
    """A signature with `**super_kwargs` that cannot be completed."""
    reason = f"with the parent's parameters its signature is wrong: {error}"
    return not_mergeable(
        RULE, location, method, reason, "Give the new parameters defaults, or write the whole signature."
    )
