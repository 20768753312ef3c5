"""MC115: a formatter that is missing or gives up."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC115",
    name="formatter-failed",
    severity=Severity.ERROR,
    summary="the formatter is missing or failed",
    explanation="""\
Every generated file is formatted as the project formats its own files; unformatted code would show up as a difference
in each check. The formatter could not be started, or ended with an error, so nothing is written.

`ruff` is installed together with this tool: `pip install ruff`. For black and isort, `pip install black` and
`pip install isort`.
When the formatter rejects its configuration, correct the file that the message names, or choose another one with
`ruff-config` in `[tool.modular-converter]`. `--formatter none` leaves the code as it is generated.
""",
)


def missing(formatter: str, *, otherwise: str = "convert with `--formatter none`") -> Finding:
    """The program or package `formatter` is not installed; `otherwise` is what helps instead of installing it."""
    return Finding(
        RULE,
        Location(formatter),
        f"the formatter `{formatter}` is not installed in this environment",
        help=f"Run `pip install {formatter}`, or {otherwise}.",
    )


def diagnose(location: Location, formatter: str, reason: str) -> Finding:
    """`location` is the formatter's configuration or program; `reason` is what it said, or how it ended."""
    return Finding(
        RULE,
        location,
        f"`{formatter}` failed: {reason}",
        help="Correct what the formatter complains about, or convert with `--formatter none`.",
    )
