"""Generated files that differ from what their modular files give, and marked copies (`# Copied from …`) that differ from
their sources.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from dataclasses import replace

from modular_converter.findings import Finding, Location, Rule, first_of


NAMED = 3
"""Definitions, and members of one, that a message names; the rest are counted."""

GENERATED_FILE_DIFFERS = Rule(
    "MC401", "generated-file-differs", "a generated file differs from the conversion of its modular file"
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
    "MC402", "generated-file-missing", "a modular file was never converted, or its generated file was removed"
)


def generated_file_missing(location: Location, modular: str) -> Finding:
    """`location` is the generated file that should be there."""
    return GENERATED_FILE_MISSING.finding(
        location,
        f"{modular} gives this file, but it does not exist",
        help="Run `check-modular-conversion --write`.",
    )


GENERATED_FILE_ORPHANED = Rule(
    "MC403", "generated-file-orphaned", "no modular file generates a file with the banner of generated files"
)


def generated_file_orphaned(location: Location, modular: str, reason: str) -> Finding:
    """`modular` is the file that the banner names; `reason` says why it does not generate this file, "" where something else
    than a file has its name.
    """
    return GENERATED_FILE_ORPHANED.finding(
        location,
        f"its banner says that it is generated from {modular}, which {reason or 'is no file that can be read'}",
        help="Remove it, or remove its banner to go on by hand." if reason else f"Restore {modular}.",
    )


WIDEST = 100
"""Characters of an example."""

FILES_DIFFER_ALIKE = Rule(
    "MC404", "files-differ-alike", "many generated files differ from their conversions in the same way", is_first=True
)


_FIND_OUT = "Find out which is right before `--write` changes all of them: the files or the conversion."


class Reason(enum.Enum):
    """The probable cause, which the message ends with, and what to do."""

    RELEASE = (
        "the conventions have probably changed with the release; these files were not edited by hand",
        "Do not run `--write`, which would undo this in all of them. Update modular-converter (MC394).",
    )
    SOURCE = (
        "either {}, which all are made from, has changed since they were written, or a convention has",
        "Run `check-modular-conversion --write` if it is the file that has changed.",
    )
    CONVENTION = "a convention has probably changed; these files were not edited by hand", _FIND_OUT
    OPEN = "they have one cause: a convention has changed, or somebody edited them alike", _FIND_OUT


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
    cause, cure = reason.value
    said = cause.format(first_of(shared, NAMED))
    places = first_of([f"{'/'.join(one.path.split(os.sep)[-2:])}:{one.line}" for one in others], NAMED)
    return FILES_DIFFER_ALIKE.finding(
        first,
        f"{len(locations)} of {files} generated files that differ do so in the same way: the conversion {change}; {said}",
        help=f"{cure}\nHere: {shown or 'blank lines'}{'' if after else ', missing in the conversion'}."
        f"\nThe same in {places}.",
        related=tuple(others),
    )


MERGE_SETUP_MISSING = Rule(
    "MC395", "merge-setup-missing", "the project lets git resolve generated files, and this clone is not set up for it"
)


def merge_setup_missing(location: Location, reason: str) -> Finding:
    """`location` is the file of attributes; `reason` says what is missing."""
    return MERGE_SETUP_MISSING.finding(
        location,
        f"git does not resolve all conflicts in generated files: {reason}",
        help="Run `modular-convert merge-driver install`.",
    )


DRIFTED_COPY = Rule("MC411", "drifted-copy", "a definition with a mark `# Copied from …` differs from its source")


def drifted_copy(
    location: Location, name: str, source: str, members: Sequence[str], refusal: str = "", *, signature: bool = False
) -> Finding:
    """`members` are the names that differ; `refusal` is the reason why `--write` leaves the copy, if it does.

    Args:
        signature: whether the signature alone differs.
    """
    where = f" in {first_of([f'`{member}`' for member in members], NAMED)}" if members else ""
    subject = f"the signature of `{name}` alone" if signature else f"`{name}`"
    cure = (
        f"It cannot be put right automatically: {refusal}." if refusal else "`--diff` shows how, `--write` writes it."
    )
    return DRIFTED_COPY.finding(
        location,
        f"{subject} differs from its source {source}{where}",
        help=f"{cure} Or put `# Ignore copy` above what is meant to differ.",
    )


DANGLING_COPY = Rule("MC412", "dangling-copy", "the source of a mark `# Copied from …` does not exist")


def dangling_copy(location: Location, source: str, reason: str) -> Finding:
    """`reason` names the part of `source` that does not exist."""
    return DANGLING_COPY.finding(
        location,
        f"the source {source} does not exist: {reason}",
        help="Correct the name, or remove the comment.",
    )


INVISIBLE_COPY = Rule(
    "MC393", "invisible-copy", "a comment about a copy has not the form of a mark, so that no check sees it"
)


def invisible_copy(location: Location, reason: str) -> Finding:
    """`reason` says what is wrong with the comment."""
    return INVISIBLE_COPY.finding(
        location,
        f"nothing compares this copy with its source: {reason}",
        help="Write `# Copied from <package>.<module>.<name> with Old->New` directly above the `def` or `class`.",
    )
