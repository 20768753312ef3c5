"""MC501: generated code that does not compile."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, examples, new_mlp, old_mlp


RULE = Rule(
    code="MC501",
    name="invalid-result",
    severity=Severity.ERROR,
    summary="the generated code is not valid Python",
    explanation="""\
The text that the converter put together does not compile, so nothing is written. Its parts come from two files, of
which each compiles alone: renaming, for example, may give two parameters of the parent one name. The finding points
at the class of the modular file from which the text comes. A mistake in one of the two files is MC101.

Write the method out, without `super()`, so that nothing of the parent's is put into it.
""",
    examples=examples(
        old_mlp("""\
    def mix(self, old_states, new_states):
        return old_states + new_states
"""),
        bad=NEW_MLP,
        good=new_mlp("""\
    def mix(self, states, added_states):
        return states + added_states
"""),
    ),
)


def diagnose(location: Location, reason: str, place: str) -> Finding:
    """`reason` is Python's own; `place` names the definition and the line of the generated file."""
    return Finding(
        RULE,
        location,
        f"the generated code is not valid Python: {reason}, in {place}",
        help="Write out the method that is merged or renamed there. `--formatter none --diff` shows the text.",
    )
