"""MC404: many generated files that differ from their conversions in the same way."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence

from modular_converter.findings import Finding, Location, Rule, Severity, first_of


NAMED = 3
"""Files that the help names; the rest are counted."""
WIDEST = 100
"""Characters of an example."""

RULE = Rule(
    code="MC404",
    name="files-differ-alike",
    severity=Severity.ERROR,
    is_first=True,
    summary="many generated files differ from their conversions in the same way",
    explanation="""\
At least three models differ by the same kind of change: a decorator, a comment or a docstring is missing, methods have
another order, a word is written for another. Names do not count, so the change is told once, with its first place and
one example. A file that differs in another way, too, also has MC401.

Such files have one cause. If the release is newer than the tool knows (MC394), a convention has probably changed: the
files are right, and `--write` would damage them. If all are made from one file, that file may have changed, and then
`--write` writes them anew. Files that git proves to be edited by hand, or made from a changed file, have MC401 alone,
unless three other models have the same change.
""",
)


class Reason(enum.Enum):
    """The probable cause, which the message ends with."""

    RELEASE = "the conventions have probably changed with the release; these files were not edited by hand"
    SOURCE = "either {}, which all are made from, has changed since they were written, or a convention has"
    CONVENTION = "a convention has probably changed; these files were not edited by hand"
    OPEN = "they have one cause: a convention has changed, or somebody edited them alike"


_CURES = {
    Reason.RELEASE: "Do not run `--write`, which would undo this in all of them. Update modular-converter (MC394).",
    Reason.SOURCE: "Run `check-modular-conversion --write` if it is the file that has changed.",
    Reason.CONVENTION: "Find out which is right before `--write` changes all of them: the files or the conversion.",
    Reason.OPEN: "Find out which is right before `--write` changes all of them: the files or the conversion.",
}


def diagnose(
    locations: Sequence[Location],
    change: str,
    files: int,
    example: tuple[str, str],
    reason: Reason,
    shared: Sequence[str] = (),
) -> Finding:
    """`locations` are the first place in each of the files, at least two.

    Args:
        change: what the conversion does, such as "leaves out decorators of methods".
        files: the number of all files that differ.
        example: the lines on disk and in the conversion.
        reason: the probable cause.
        shared: names of files that all of them are made from.
    """
    first, *others = locations
    before, after = (" ".join(one.split())[:WIDEST] for one in example)
    shown = f"`{before}` on disk" if before else ""
    shown += (f" is `{after}` in the conversion" if before else f"`{after}` is new in the conversion") if after else ""
    said = reason.value.format(first_of(shared, NAMED))
    places = first_of([f"{'/'.join(one.path.split(os.sep)[-2:])}:{one.line}" for one in others], NAMED)
    return Finding(
        RULE,
        first,
        f"{len(locations)} of {files} generated files that differ do so in the same way: the conversion {change}; {said}",
        help=f"{_CURES[reason]}\nHere: {shown or 'blank lines'}{'' if after else ', missing in the conversion'}."
        f"\nThe same in {places}.",
        related=tuple(others),
    )
