"""MC199: an error of the tool itself."""

from __future__ import annotations

import traceback

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC199",
    name="internal-error",
    severity=Severity.ERROR,
    summary="the converter itself failed",
    explanation="""\
The converter met something that it was not written for. This is a mistake in the converter, not in your file, even if
a small change of the file may avoid it. Nothing was written for the file; the others went on.

Please report it with the modular file, or the named class and its parent, and with the traceback, which
`modular-convert --verbose` prints.
""",
)


def diagnose(location: Location, error: BaseException, *, class_name: str = "") -> Finding:
    """`location` and `class_name` say what was being worked on. `error` is being handled: it has its traceback."""
    where = f" while working on class `{class_name}`" if class_name else ""
    said = f": {error}" if str(error) else ""
    return Finding(
        RULE,
        location,
        f"internal error{where}: {type(error).__name__}{said}",
        help="This is a bug in modular-converter. Please report it with this file and the traceback, which "
        "`modular-convert --verbose` prints.",
        details="".join(traceback.format_exception(error)),
    )
