"""Changes as findings: those of one cause are one, with the models and entries that it reaches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from modular_converter.breaking.cause import Causes
from modular_converter.breaking.changes import ModelChange
from modular_converter.breaking.values import CodePlace
from modular_converter.check.cache.answers import KeptAnswers
from modular_converter.check.cache.store import digest
from modular_converter.convert.silence import is_silenced
from modular_converter.convert.source.library import Library, ignore_comments
from modular_converter.findings import Finding, Location, Severity, first_of
from modular_converter.reporting.display import count
from modular_converter.rules import by_code


NAMED = 6
"""Models, and entries of state dicts, that a message names."""


class CauseGroup(NamedTuple):
    """The changes of one cause and kind."""

    cause: CodePlace
    rule: str
    message: str
    changes: tuple[ModelChange, ...]

    @property
    def models(self) -> list[str]:
        """The models that it reaches, sorted."""
        return sorted({one.model for one in self.changes})

    @property
    def keys(self) -> int:
        """The entries of state dicts that it changes, in all models."""
        return sum(len(one.keys) for one in self.changes)


def groups(changes: Sequence[ModelChange], library: Library, answers: KeptAnswers) -> list[CauseGroup]:
    """The changes by cause, those that reach the most models first. `answers` keep the causes of the last changes."""

    def causes_in(library: Library) -> list[CodePlace]:
        causes = Causes(library, changes)
        return [causes.of(one) for one in changes]

    found: dict[tuple[CodePlace, str, str], list[ModelChange]] = {}
    places = answers.get("causes", library, causes_in, about=digest(repr(changes).encode("utf-8", "surrogatepass")))
    for one, place in zip(changes, places):
        found.setdefault((CodePlace(*place), one.rule, one.message), []).append(one)
    made = [CauseGroup(*key, tuple(members)) for key, members in found.items()]
    return sorted(made, key=lambda one: (by_code(one.rule).code, -len(one.models), one.cause, one.message))


def findings_of(found: Sequence[CauseGroup], library: Library) -> list[Finding]:
    """The findings that the settings and comments leave, with their severity."""
    settings = library.settings
    texts: dict[str, str] = {}
    left = []
    for group in found:
        path = group.cause.path
        if path not in texts:
            texts[path] = library.text_if_readable(path) or ""
        finding = _finding(group).with_source(texts[path])
        if is_silenced(finding, path, settings) or _is_ignored(finding, texts[path]):
            continue
        left.append(finding.with_severity(Severity.ERROR) if settings.strict else finding)
    return left


def _is_ignored(finding: Finding, text: str) -> bool:
    comments = (one for one in ignore_comments(text) if one.line == finding.location.line)
    return any(
        finding.rule.is_meant_by(entry.upper()) or entry == finding.rule.name
        for one in comments
        for entry in one.entries
    )


def _finding(group: CauseGroup) -> Finding:
    rule, models = by_code(group.rule), group.models
    reached = f"{count(len(models), 'model')} ({first_of(models, NAMED)})"
    keys = f", {count(group.keys, 'key')}" if group.keys else ""
    owner = f" in `{group.cause.owner}`" if group.cause.owner else ""
    entries = list(dict.fromkeys(key for one in group.changes for key in one.keys))
    related = dict.fromkeys(Location(one.place.path, one.place.line) for one in group.changes)
    return rule.finding(
        Location(group.cause.path, group.cause.line),
        f"{group.message}{owner}: {reached}{keys}",
        help=f"Keys: {first_of(entries, NAMED)}." if entries else "",
        related=tuple(one for one in related if one.path != group.cause.path),
    )
