"""MC114: a path that leads out of the root."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC114",
    name="outside-root",
    severity=Severity.ERROR,
    summary="a path leads out of the root",
    explanation="""\
Once symbolic links and `..` are followed, this path lies outside the folder that the run may read from or write to. A
link in a stranger's pull request must not make the converter overwrite a file of yours, or copy your files into the
tree.

Remove the link, or name the folder that holds both ends with `--root DIR` or `--output-dir DIR`.
""",
)


def diagnose(location: Location, target: str, root: str) -> Finding:
    """`target` is where the path of `location` really leads."""
    return Finding(
        RULE,
        location,
        f"this path leads to {target}, outside of {root}",
        help="Remove the symbolic link or the `..`, or choose a wider folder with `--root` or `--output-dir`.",
    )
