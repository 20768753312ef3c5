"""Generated files that differ from what their modular files give."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import replace

from modular_converter.findings import Finding, Location, Rule, Severity, first_of


NAMED = 3
"""Definitions that a message names; the rest are counted."""

GENERATED_FILE_DIFFERS = Rule(
    code="MC401",
    name="generated-file-differs",
    severity=Severity.ERROR,
    summary="a generated file differs from the conversion of its modular file",
    explanation="""\
Either the generated file was edited by hand, or the modular file or a file that it builds on has changed since the
last conversion. The next conversion would overwrite the generated file.

Put edits into the modular file; `modular-convert absorb FILE` does so where it can prove the result. Then run
`check-modular-conversion --write`, and commit the files that it writes.
""",
)


def generated_file_differs(
    location: Location, modular: str, definitions: Sequence[str] | None, cause: str, *, in_layout: bool = False
) -> Finding:
    """`location` is the first difference in the generated file; `cause` says how it came about.

    Args:
        definitions: the names of the definitions that differ; None for line ends alone.
        in_layout: whether code and comments are the same, and only their layout differs.
    """
    return GENERATED_FILE_DIFFERS.finding(
        location,
        f"not what {modular} gives: {_said(definitions, in_layout)}; {cause}",
        help=f"Put edits into {modular} (`modular-convert absorb FILE` carries them), then run "
        "`check-modular-conversion --write`.",
    )


def besides(finding: Finding, shared: Finding) -> Finding:
    """The finding about a file that differs in another way, too, which `shared` tells of many files."""
    return replace(finding, message=f"{finding.message}; {shared.code} tells the rest")


def _said(definitions: Sequence[str] | None, in_layout: bool) -> str:
    if definitions is None:
        return "only line ends differ (`\\r\\n`, or none at the end of the file)"
    named = first_of([f"`{name}`" for name in definitions], NAMED) or "text outside of definitions"
    return f"{named} differ{'' if len(definitions) > 1 else 's'}{' in layout alone' if in_layout else ''}"


GENERATED_FILE_MISSING = Rule(
    code="MC402",
    name="generated-file-missing",
    severity=Severity.ERROR,
    summary="a modular file was never converted, or its generated file was removed",
    explanation="""\
The conversion of the modular file gives a file that does not exist, so the model cannot be imported.

Run `check-modular-conversion --write`, and commit the files that it writes.
""",
)


def generated_file_missing(location: Location, modular: str) -> Finding:
    """`location` is the generated file that should be there."""
    return GENERATED_FILE_MISSING.finding(
        location,
        f"{modular} gives this file, but it does not exist",
        help="Run `check-modular-conversion --write`.",
    )


GENERATED_FILE_ORPHANED = Rule(
    code="MC403",
    name="generated-file-orphaned",
    severity=Severity.ERROR,
    summary="no modular file generates a file with the banner of generated files",
    explanation="""\
The comment at the top names a modular file that does not exist, or that no longer generates this file. No check keeps
the file up to date, but the comment forbids editing it.

Remove the file, restore the modular file, or remove the comment and maintain the file by hand. `--write` never deletes
files.
""",
)


def generated_file_orphaned(location: Location, modular: str, reason: str) -> Finding:
    """`modular` is the file that the banner names; `reason` says why it does not generate this file."""
    return GENERATED_FILE_ORPHANED.finding(
        location,
        f"its banner says that it is generated from {modular}, which {reason}",
        help="Remove it, or remove its banner to go on by hand.",
    )


WIDEST = 100
"""Characters of an example."""

FILES_DIFFER_ALIKE = Rule(
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


def files_differ_alike(
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
    return FILES_DIFFER_ALIKE.finding(
        first,
        f"{len(locations)} of {files} generated files that differ do so in the same way: the conversion {change}; {said}",
        help=f"{_CURES[reason]}\nHere: {shown or 'blank lines'}{'' if after else ', missing in the conversion'}."
        f"\nThe same in {places}.",
        related=tuple(others),
    )


MERGE_SETUP_MISSING = Rule(
    code="MC395",
    name="merge-setup-missing",
    severity=Severity.WARNING,
    summary="the project lets git resolve generated files, and this clone is not set up for it",
    explanation="""\
`modular-convert merge-driver install` has named the generated files in `.gitattributes`, so that git resolves
conflicts in them by converting from the merged modular files. The block there names other files than today's, or the
configuration of this clone lacks the driver, which git never takes from a repository.

Run `modular-convert merge-driver install`, and commit `.gitattributes` where it changes.
""",
)


def merge_setup_missing(location: Location, reason: str) -> Finding:
    """`location` is the file of attributes; `reason` says what is missing."""
    return MERGE_SETUP_MISSING.finding(
        location,
        f"git does not resolve all conflicts in generated files: {reason}",
        help="Run `modular-convert merge-driver install`.",
    )
