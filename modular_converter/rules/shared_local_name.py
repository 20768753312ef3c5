"""MC321: a line of an override that reads a local name of the parent's in place of its own."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import examples, new_mlp, old_mlp


RULE = Rule(
    code="MC321",
    name="shared-local-name",
    severity=Severity.WARNING,
    summary="a line of an override reads a local name that the parent's lines have too",
    explanation="""\
The parent's lines take the place of a `super()` call, so the local names of both methods become one set. An assignment
behind the call takes the place of the parent's. A line that reads a name there may find the parent's value of that
name, or the value from before your own assignment to it further down.

Use another name, assign it above the call, or write the parent's lines out.
""",
    examples=examples(
        old_mlp("""\
    def forward(self, hidden_states):
        hidden_states = self.up_proj(hidden_states)
        return hidden_states
"""),
        bad=new_mlp("""\
    def forward(self, hidden_states):
        super().forward(hidden_states)
        return hidden_states + 1
"""),
        good=new_mlp("""\
    def forward(self, hidden_states):
        residual = hidden_states
        super().forward(hidden_states)
        return residual + 1
"""),
    ),
)


def diagnose(location: Location, name: str, state: str, method: str) -> Finding:
    """`state` says how the name differs, for `method`, from the value that the line was written for."""
    return Finding(
        RULE,
        location,
        f"in the merged `{method}`, the `{name}` that this line reads {state}",
        help=f"Use another name than `{name}`, assign it above the call, or write the parent's lines out.",
    )


def read_by_parent(location: Location, name: str, statement: str, method: str) -> Finding:
    """`statement` is a line of the parent that reads the child's local `name`, which takes the place of its own."""
    first, rest = statement.partition("\n")[::2]
    return Finding(
        RULE,
        location,
        f"in the merged `{method}`, the parent's `{first}{'…' if rest else ''}` reads this `{name}` in place of its own",
        help=f"Use another name than `{name}` if only your lines shall read it.",
    )
