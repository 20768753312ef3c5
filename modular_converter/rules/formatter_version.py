"""MC118: a formatter of another version than the library is formatted with."""

from __future__ import annotations

from dataclasses import replace

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC118",
    name="formatter-version",
    severity=Severity.ERROR,
    summary="the formatter has another version than the library is formatted with",
    explanation="""\
Two versions of a formatter can lay out the same code differently, so the version decides the bytes of generated files.
`formatter-version` in `[tool.modular-converter]` names it, else `required-version` in the settings of ruff (those of a
model's own folder, where it has some) or black, else the profile (`transformers`: ruff 0.14.10); `post-format` names
that of isort. This environment has another version, so nothing is written. The check goes on: it reports files whose
code differs, and counts those that differ by formatting alone.

Install the named version wherever the tool runs: `pip install ruff==0.14.10`, in a hook of pre-commit
`additional_dependencies: ["ruff==0.14.10"]`. The first `ruff` on `PATH` is used if it has this version and lies
outside of the project. To change versions, set `formatter-version`, install it, and run `--write`; `""` accepts any.
""",
)


def diagnose(
    location: Location, formatter: str, wanted: str, found: str, *, setting: str = "formatter-version"
) -> Finding:
    """`location` is where the version `wanted` is named, by `setting`; `found` is the version in use."""
    needed = f"{formatter}=={wanted}" if wanted[0].isdigit() else f"{formatter}{wanted}"
    shown = needed if wanted[0].isdigit() else f'"{needed}"'  # a shell would take `>` for a redirection
    return Finding(
        RULE,
        location,
        f"this library is formatted with `{formatter}` {wanted}, and this environment has {found}",
        help=f"Run `pip install {shown}`. In `.pre-commit-config.yaml`, give the hook "
        f'`additional_dependencies: ["{needed}"]`. Until then no generated file is written. '
        f"To use another version, set `{setting}` in `[tool.modular-converter]`.",
    )


def with_count(finding: Finding, files: int) -> Finding:
    """The finding of a check, with the number of generated files that differ by formatting alone."""
    if not files:
        return finding
    counted = "1 generated file differs" if files == 1 else f"{files} generated files differ"
    return replace(finding, message=f"{finding.message}; {counted} by formatting alone")
