"""MC113: a generated file that cannot be written."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC113",
    name="read-only-target",
    severity=Severity.ERROR,
    summary="a generated file cannot be written",
    explanation="""\
The conversion went well, but its result cannot be put in place: the file or its folder is read-only, something else
stands at that path, the disk is full, or two models with one folder name go to one `--output-dir`. The old file, if
there was one, is untouched.

Make the target writable (`chmod u+w`), or write elsewhere with `--output-dir DIR`. An installed package is always
treated as read-only.
""",
)


def diagnose(location: Location, reason: str) -> Finding:
    """`location` is the generated file; `reason` says why it cannot be written."""
    return Finding(
        RULE,
        location,
        f"cannot write this file: {reason}",
        help="Make it writable, or write elsewhere with `--output-dir DIR`.",
    )


def installed(location: Location) -> Finding:
    """`location` belongs to an installed package, into which nothing is written."""
    return diagnose(location, "it belongs to an installed package; give --output-dir")


def modular_exists(location: Location) -> Finding:
    """`location` is a modular file that people have written, or may have."""
    return Finding(
        RULE,
        location,
        "this modular file exists, and is not overwritten",
        help="Show the differences with `--diff`, or write elsewhere with `--output-dir DIR`.",
    )


def same_place(location: Location, other: str, output_dir: str) -> Finding:
    """The files of two modular files would have the same path: below `output_dir`, only the folder of the model counts."""
    return Finding(
        RULE,
        location,
        f"its generated files and those of {other} would have the same paths below {output_dir}",
        help="Convert the two with different folders for `--output-dir`.",
    )
