"""The fixes that rules offer for findings, and edits applied to a text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

from modular_converter.findings import UNPARSABLE, Edit, Finding


MOST_FIXES = 50
"""The most findings of one file that get a fix. Each fix searches the whole file, which may have thousands of
findings.
"""


def with_fixes(findings: Iterable[Finding], path: str, text: str) -> list[Finding]:
    """The findings; those about the modular file have the fixes that their rules offer.

    Args:
        findings: the findings of its conversion.
        path: the modular file.
        text: its text.
    """
    from modular_converter.rules import fixes  # a check of current files imports no rule

    found = []
    offered = 0
    for one in findings:
        if offered < MOST_FIXES and one.location.path == path and one.code in fixes():
            offered += 1
            one = _with_fix(one, text)
        found.append(one)
    return found


def _with_fix(finding: Finding, text: str) -> Finding:
    from modular_converter.rules import fixes

    try:
        return replace(finding, fix=fixes()[finding.code](text, finding))
    except UNPARSABLE:  # a text that Python cannot read has no fix
        return finding


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text with some edits, which do not overlap."""
    starts = [0, *itertools.accumulate(len(line) + 1 for line in text.split("\n"))]
    for edit in sorted(edits, reverse=True):
        start, end = starts[edit.line - 1] + edit.column - 1, starts[edit.end_line - 1] + edit.end_column - 1
        text = text[:start] + edit.text + text[end:]
    return text
