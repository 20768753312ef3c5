"""MC103: a path that does not exist or cannot be read."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean


RULE = Rule(
    code="MC103",
    name="missing-file",
    severity=Severity.ERROR,
    summary="a file or folder does not exist or cannot be read",
    explanation="""\
A path on the command line leads to no file, or to a file that may not be read. Or a folder that is searched for models
cannot be listed: a model in it would go unchecked.

Paths are taken relative to the current directory. A bare model name (`gemma`) is looked up under the models folder of
the package instead: say which package with `--package NAME` or `--root DIR` when it is not found from the files.
""",
)


def diagnose(location: Location, *, reason: str = "no such file", candidates: Iterable[str] = ()) -> Finding:
    """`candidates` are names that exist, for a spelling hint."""
    return Finding(
        RULE,
        location,
        f"cannot read this file: {reason}",
        help=did_you_mean(location.path, candidates)
        + "Check the path; it is relative to the current directory. For a model name, give `--package` or `--root`.",
    )


def model(location: Location, candidates: Iterable[str]) -> Finding:
    """`location` is what stands in place of the name of a model; `candidates` are the names that exist."""
    return Finding(
        RULE,
        location,
        "there is no model of this name",
        help=did_you_mean(location.path, candidates)
        + "Give the name of a folder of models, a folder or a file; `--package` or `--root` say where models are.",
    )


def folder(location: Location, reason: str) -> Finding:
    """A folder that cannot be listed, so its modular files are unknown."""
    return Finding(
        RULE,
        location,
        f"cannot list this folder: {reason}",
        help="Give yourself the right to read the folder (`chmod u+rx`), or remove it.",
    )
