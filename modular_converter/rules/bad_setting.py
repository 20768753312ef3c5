"""MC116: a setting that is unknown or has the wrong type."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean


RULE = Rule(
    code="MC116",
    name="bad-setting",
    severity=Severity.ERROR,
    summary="a setting in pyproject.toml or a profile is unknown, missing, or has the wrong type",
    explanation="""\
`[tool.modular-converter]` holds a key that the tool does not know, or a value that it cannot use. A misspelt key that
is passed over would look as if it had been obeyed, so the run stops.

The keys are those of the profile (`modular_converter/settings/profiles/transformers.py` explains each), and those of
a project: `profile`, `root`, `output-dir`, `workers`, `strict`, `ruff-config` and others. `required-version` names the
versions of this tool that a project accepts; another one stops the run. A profile of your own, the
folder that `profile` names, has to say all its conventions.
""",
)


def unknown(location: Location, key: str, candidates: Iterable[str]) -> Finding:
    """`key` is none of `candidates`."""
    known = sorted(candidates)
    return Finding(
        RULE,
        location,
        f"unknown setting `{key}`",
        help=did_you_mean(key, known) + f"Known here: {', '.join(known)}.",
    )


def diagnose(location: Location, key: str, reason: str, *, hint: str = "") -> Finding:
    """`reason` completes the sentence that begins with the key: `must be a string, not 3`."""
    return Finding(RULE, location, f"setting `{key}` {reason}", help=hint)


def other_tool(location: Location, required: str, present: str) -> Finding:
    """The project requires another version of this tool."""
    return Finding(
        RULE,
        location,
        f"this project requires modular-converter {required}, and this is {present}",
        help="Install a version that fits, or, to move on to this one, change the setting and generate all files anew.",
    )


def no_table(location: Location) -> Finding:
    """The file that `--config` names has no settings."""
    return Finding(RULE, location, "this file has no settings", help="Give it a table `[tool.modular-converter]`.")


def unreadable(location: Location, reason: str) -> Finding:
    """The file is no TOML."""
    return Finding(RULE, location, f"cannot read these settings: {reason}", help="Correct the TOML of this file.")


def incomplete(location: Location, missing: Iterable[str]) -> Finding:
    """The file is a profile that lacks keys."""
    return Finding(
        RULE,
        location,
        f"this profile lacks {', '.join(f'`{key}`' for key in missing)}",
        help='Write each, with `""` or an empty list where the library has no such convention.',
    )


def isort_elsewhere(path: str) -> Finding:
    """A file other than `pyproject.toml` has options of isort, and `post-format` names isort."""
    return Finding(
        RULE,
        Location(path),
        "`post-format` reads options of isort from pyproject.toml alone",
        help="Move them to `[tool.isort]` in pyproject.toml, which isort reads too.",
    )


def mixed(one: str, other: str) -> Finding:
    """Files of two projects were given; `other` may be "" for files without a project."""
    beside = other or "files that lie in no project with settings"
    return Finding(
        RULE,
        Location(one),
        f"these settings do not hold for {beside}",
        help="Convert or check each project in a run of its own.",
    )
