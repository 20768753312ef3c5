"""MC117: git cannot tell the changes since the given revision."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC117",
    name="unknown-revision",
    severity=Severity.ERROR,
    summary="git cannot tell what has changed since a revision",
    explanation="""\
`--changed-since REF` asks git which files differ from that commit. Here git has no answer: it is not installed, the
files lie in no git work tree, or this clone does not have the commit. Checking nothing would look like success.

Fetch the commit first. `git fetch origin main` brings `origin/main`, `git fetch --unshallow` the rest of a shallow
clone; in GitHub Actions, `actions/checkout` fetches a single commit unless it is given `fetch-depth: 0`. Without
`--changed-since` everything is checked, and git is not needed.
""",
)


def diagnose(ref: str, reason: str) -> Finding:
    """`reason` is git's own message, or the reason why git gives none."""
    return Finding(
        RULE,
        Location("--changed-since"),
        f"cannot tell what has changed since `{ref}`: {reason}",
        help="Fetch that commit (`git fetch origin main`, or `fetch-depth: 0` in GitHub Actions), correct its name, or "
        "leave `--changed-since` out to check everything.",
    )
