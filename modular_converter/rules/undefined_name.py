"""MC313: a name in generated code that nothing defines."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import OLD_MLP, examples, new_mlp


RULE = Rule(
    code="MC313",
    name="undefined-name",
    severity=Severity.ERROR,
    summary="generated code uses a name that it neither defines nor imports",
    explanation="""\
The generated file would fail with a `NameError` when it reaches this name, so nothing is written. The finding stands
at the place in the modular file from which the code comes, and names the cause if it is known: a name that is not
imported, a parameter that the override lacks, a helper that was renamed together with its model, a class in its own
annotations, which `from __future__ import annotations` at the top of the modular file allows. A name that only stands
in a quoted annotation, which Python does not evaluate, is a warning.

Import the name in the modular file or define it there: what a class uses is carried along with it.
""",
    examples=examples(
        OLD_MLP,
        bad=new_mlp("""\
    def forward(self, hidden_states):
        return double(hidden_states)
"""),
        good="""\
from ..old.modeling_old import OldMLP


def double(hidden_states):
    return 2 * hidden_states


class NewMLP(OldMLP):
    def forward(self, hidden_states):
        return double(hidden_states)


__all__ = ["NewMLP"]
""",
    ),
)


def diagnose(location: Location, name: str, place: str, cure: str, *, later: int = 0, is_own: bool = False) -> Finding:
    """`place` names the definition and the line of the generated file, `cure` says what to write.

    Args:
        later: the line of that file in which the name is defined, further down; 0 for none.
        is_own: whether it is the name of the definition itself.
    """
    fault = f" above its definition in line {later}" if later else ", which is neither defined nor imported there"
    if is_own:
        fault = " before it is defined"
    return Finding(RULE, location, f"{place} uses `{name}`{fault}", help=cure)
