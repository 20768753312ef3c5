"""MC391: a comment `# modular: ignore[…]` on a line without such a finding."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, OLD_MLP


RULE = Rule(
    code="MC391",
    name="unused-ignore",
    severity=Severity.WARNING,
    summary="a comment `# modular: ignore[…]` silences nothing",
    explanation="""\
The line of the comment has no finding of the rule that the comment names. Most often the cause of the finding is gone.
A comment that stays would silence the next finding there, which nobody has looked at.

Remove the rule from the comment, and a comment without rules as a whole. If the finding still exists, move the comment
to the line that the finding names.
""",
    bad=(
        OLD_MLP,
        (
            "models/new/modular_new.py",
            """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):  # modular: ignore[MC307]
    pass


__all__ = ["NewMLP"]
""",
        ),
    ),
    good=(
        OLD_MLP,
        NEW_MLP,
    ),
)


def diagnose(location: Location, entry: str) -> Diagnostic:
    """`location` is the comment; `entry` is a code, name or prefix in it."""
    return Diagnostic(
        RULE,
        location,
        f"there is no finding of `{entry}` on this line",
        help=f"Remove `{entry}` from the comment, or move the comment to the line of the finding.",
    )
