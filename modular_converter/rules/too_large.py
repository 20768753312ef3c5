"""MC112: a source over the size limit."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC112",
    name="too-large",
    severity=Severity.ERROR,
    summary="a source file is larger than the limit",
    explanation="""\
Time and memory of a conversion grow with the sources that it reads, and the check may run on strangers' pull requests.
So no source larger than `max-file-bytes` is read. The largest published model files are far below the default.

If the file is meant to be that large, raise the limit:

    [tool.modular-converter]
    max-file-bytes = 8_000_000
""",
)


def diagnose(location: Location, size: int, limit: int) -> Finding:
    """Both numbers are in bytes."""
    return Finding(
        RULE,
        location,
        f"the file has {size:,} bytes, more than the limit of {limit:,}",
        help="Make the file smaller, or raise `max-file-bytes` in `[tool.modular-converter]`.",
    )
