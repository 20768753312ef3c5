"""Findings as they are told: with the fixes that rules offer, and without the warnings that an author silences, by a
comment on the line, or by `select` and `ignore` in the settings.

Only warnings can be left out: an error means a wrong result. Comments are part of the modular file, so they are applied
once and the cache stores the remaining findings. Settings are applied after the cache, so that a changed setting takes
effect at once.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace

from modular_converter.files.write import about_release, is_about_release
from modular_converter.findings import UNPARSABLE, Conversion, Finding, Location, Rule, Severity
from modular_converter.rules import fixes, off_by_default, settings_tables
from modular_converter.settings.values import Settings


def with_selected_findings(conversion: Conversion, settings: Settings) -> Conversion:
    """A conversion with the findings that the settings select, in their severity; `found` keeps all findings."""
    found = conversion.findings
    if not found:
        return conversion
    kept = found
    if settings.silences:
        kept = tuple(one for one in found if not is_silenced(one, conversion.path, settings))
    result = replace(conversion, findings=kept, found=found)
    return result.strictly() if settings.strict else result


def release_first(findings: Iterable[Finding], settings: Settings) -> list[Finding]:
    """The findings of a run, headed by the one about an unchecked release: the error that kept files from being changed,
    else the warning, unless the settings leave it out.
    """
    found = list(findings)
    kept = [one for one in found if is_about_release([one])]
    about = about_release(settings)
    if kept or about is None or is_silenced(about, about.location.path, settings):
        return [*kept[:1], *(one for one in found if one not in kept)]
    return [about.with_severity(Severity.ERROR) if settings.strict else about, *found]


def is_silenced(finding: Finding, path: str, settings: Settings) -> bool:
    """Whether the settings leave out a finding about a modular file."""
    if not finding.rule.can_be_ignored:
        return False
    rule = finding.rule
    if any(
        _longest(rule, entries)
        for pattern, entries in settings.per_file_ignores.items()
        if _fits(path, pattern, settings)
    ):
        return True
    selected = _longest(rule, settings.select)
    return not selected or _longest(rule, settings.ignore) >= selected


def _longest(rule: Rule, prefixes: Iterable[str]) -> int:
    """The length of the longest of some prefixes of a rule's code or former code; 0 for none."""
    return max((len(prefix) for prefix in prefixes if rule.is_meant_by(prefix)), default=0)


def _fits(path: str, pattern: str, settings: Settings) -> bool:
    """Whether a pattern means a file: by its name, or by its path below the folder of the settings."""
    relative = os.path.relpath(path, os.path.dirname(settings.pyproject) or os.curdir).replace(os.sep, "/")
    return fnmatch.fnmatchcase(os.path.basename(path), pattern) or fnmatch.fnmatchcase(relative, pattern)


def without_silenced(findings: Sequence[Finding], path: str, text: str) -> list[Finding]:
    """The findings about a modular file that its comments leave, and those about the comments themselves.

    Args:
        findings: all findings, sorted.
    """
    from modular_converter.convert.source.library import ignore_comments

    comments = ignore_comments(text)
    if not comments:
        return list(findings)
    left = list(findings)
    failed = any(one.is_error for one in findings)
    about: list[Finding] = []
    for comment in comments:
        place = Location(path, comment.line, comment.column, comment.line, comment.end_column)
        silenced, about_entries = _silenced_by(comment.entries, place, left, failed)
        left = [one for one in left if one not in silenced]
        about += (one.with_source(text) for one in about_entries)
    return sorted([*left, *about], key=lambda one: one.sort_key)


def _silenced_by(
    entries: Sequence[str], place: Location, findings: Sequence[Finding], failed: bool
) -> tuple[list[Finding], list[Finding]]:
    """The findings that one comment silences, and those about its entries."""
    silenced: list[Finding] = []
    about_entries = [] if entries else [settings_tables.names_none(place)]
    for entry in entries:
        prefix, unknown = settings_tables.resolve_code(place, entry)
        if unknown is not None:
            about_entries.append(unknown)
            continue
        now = [one for one in findings if _is_about(one, place, prefix)]
        # An error keeps some rules from being checked, and a rule that is off may have been on in another run.
        if not now and not failed and prefix not in off_by_default():
            about_entries.append(settings_tables.unused_ignore(place, entry))
        silenced += now
    return silenced, about_entries


def _is_about(finding: Finding, place: Location, prefix: str) -> bool:
    location = finding.location
    lines = range(location.line, (location.end_line or location.line) + 1)
    return (
        finding.rule.can_be_ignored
        and location.path == place.path
        and place.line in lines
        and finding.rule.is_meant_by(prefix)
    )


MOST_FIXES = 50
"""The most findings of one file that get a fix. Each fix searches the whole file, which may have thousands of
findings.
"""


def with_fixes(findings: Iterable[Finding], path: str, text: str) -> list[Finding]:
    """The findings; those about the modular file have the fixes that their rules offer."""
    found = []
    offered = 0
    for one in findings:
        if offered < MOST_FIXES and one.location.path == path and one.code in fixes():
            offered += 1
            one = _with_fix(one, text)
        found.append(one)
    return found


def _with_fix(finding: Finding, text: str) -> Finding:
    try:
        return replace(finding, fix=fixes()[finding.code](text, finding))
    except UNPARSABLE:  # a text that Python cannot read has no fix
        return finding
