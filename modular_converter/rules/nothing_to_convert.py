"""MC111: an argument that leads to no modular file."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean


RULE = Rule(
    code="MC111",
    name="nothing-to-convert",
    severity=Severity.ERROR,
    summary="an argument leads to no modular file",
    explanation="""\
An argument may be a path, a glob, a folder, the name of a model, or `all`. This one leads to no file named
`modular_<model>.py`, and quietly doing nothing would look like success.

Check the spelling. A model name is looked up under the models folder of the package: give `--package NAME` or
`--root DIR` when that folder is elsewhere. Quote a glob that the shell should not expand.
""",
)


def diagnose(argument: str, *, reason: str = "", candidates: Iterable[str] = ()) -> Finding:
    """`argument` as given on the command line; `candidates` are models that do have a modular file."""
    return Finding(
        RULE,
        Location(argument),
        f"`{argument}` leads to no modular file" + (f": {reason}" if reason else ""),
        help=did_you_mean(argument, candidates)
        + "Give a `modular_<model>.py`, a glob, a folder that holds some, a model name, or `all`.",
    )
