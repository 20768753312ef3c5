"""MC392: a comment `# modular: ignore[…]` that has no effect."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules import NotIgnorableError, UnknownRuleError, ignorable_prefix
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC392",
    name="bad-ignore",
    severity=Severity.WARNING,
    summary="a comment `# modular: ignore[…]` names no rule, or a rule that cannot be ignored",
    explanation="""\
A comment `# modular: ignore[MC307]` silences this rule on its line. Several rules are separated by commas. A rule is
named by its code, by its name (`colliding-prefix`), or together with others by the beginning of the code (`MC3`).

This comment names no rule, or a rule that does not exist, or an error. Errors mean that the generated code would be
wrong, so no comment and no setting silences them: cure the error instead. Name each rule that you mean: a comment
without names would also silence what nobody has seen yet.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):  # modular: ignore[MC399]
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def resolve_code(location: Location, entry: str) -> tuple[str, Finding | None]:
    """The code or prefix that an entry of the comment means, and the finding about an entry that means none."""
    try:
        return ignorable_prefix(entry), None
    except (UnknownRuleError, NotIgnorableError) as error:
        return "", diagnose(location, str(error))


def diagnose(location: Location, reason: str) -> Finding:
    """`location` is the comment; `reason` is a sentence about one of its entries."""
    return Finding(
        RULE,
        location,
        f"this comment silences nothing: {reason}",
        help="Correct the comment, or remove it. `modular-convert --list-rules` shows which rules can be ignored.",
    )


def names_none(location: Location) -> Finding:
    """The comment has no brackets, or nothing in them."""
    return diagnose(location, "it names no rule; write `# modular: ignore[MC307]`")
