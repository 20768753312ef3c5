"""MC101: a file that Python cannot parse."""

from __future__ import annotations

import sys

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC101",
    name="syntax-error",
    severity=Severity.ERROR,
    summary="the file is not valid Python",
    explanation="""\
A modular file, or a neighbour that it takes code from, cannot be parsed, so there is nothing to build on.
The place is the one that Python's own parser gives; the mistake is there or just above, often a bracket or a quote
that was never closed.

Correct the file first: `python -m py_compile FILE` must pass. When the file uses syntax of a newer Python than the
one that runs the converter, run the converter with that newer Python.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP)
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, reason: str, *, neighbour_of: str = "") -> Finding:
    """`reason` is the parser's own message; `neighbour_of` the modular file that needed this one, if it is another."""
    program = location.path if not location.path.startswith("<") else "FILE"  # standard input has no name
    needed = f" (needed by {neighbour_of})" if neighbour_of else ""
    return Finding(
        RULE,
        location,
        f"this is not valid Python {sys.version_info.major}.{sys.version_info.minor}: {reason}{needed}",
        help=f"Correct the file until `python -m py_compile {program}` passes.",
    )
