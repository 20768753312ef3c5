"""What a pull request means, as one bounded Markdown text: generated files that are out of date, with their cause and a
patch, and what changes for those who use the models.

The sources are a stranger's, and a job with rights posts the text. So nothing of them is Markdown or HTML in it: texts
are written as entities, and the patch stands in a fence that is longer than any in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from modular_converter.breaking.report import NAMED, CauseGroup
from modular_converter.check.compare import Difference
from modular_converter.findings import first_of
from modular_converter.reporting.diffs import unified
from modular_converter.reporting.display import count
from modular_converter.rules import by_code


MOST_ROWS = 40
MOST_STALE = 20
MOST_LINES = 200
"""Lines of the patch."""
MOST_CHARACTERS = 60_000
"""GitHub takes 65,536."""
_PLAIN = re.compile(r"[^\w .,;=/-]")


def comment(stale: Sequence[Difference], found: Sequence[CauseGroup], shown: Callable[[str], str]) -> str:
    """The text, of at most `MOST_CHARACTERS`.

    Args:
        stale: the generated files that are out of date.
        found: what changes, by cause.
        shown: the path that readers see.
    """
    parts = [
        "## Models\n",
        _stale(stale, shown),
        "### What changes for those who use the models\n\n" + _causes(found, shown),
    ]
    text = "\n".join(parts)
    patch = _patch(stale)
    return text + patch if len(text) + len(patch) <= MOST_CHARACTERS else text[:MOST_CHARACTERS]


def _stale(stale: Sequence[Difference], shown: Callable[[str], str]) -> str:
    if not stale:
        return "All generated files are what their modular files give.\n"
    rows = [
        f"* {_plain(shown(one.path))}: {_plain(finding.message)}"
        for one in stale[:MOST_STALE]
        for finding in one.findings[:1]
    ]
    more = [f"* {len(stale) - MOST_STALE} more"] if len(stale) > MOST_STALE else []
    head = f"### {count(len(stale), 'generated file')} out of date\n"
    cure = "\n`check-modular-conversion --write` writes them; the patch below is the same.\n"
    return "\n".join([head, *rows, *more, cure])


def _causes(found: Sequence[CauseGroup], shown: Callable[[str], str]) -> str:
    if not found:
        return "Nothing.\n"
    rows = [
        f"| {by_code(one.rule).code} | {_plain(shown(one.cause.path))}:{one.cause.line} | {_plain(one.message)} "
        f"| {len(one.models)} | {one.keys or ''} | {_plain(first_of(one.models, NAMED))} |"
        for one in found[:MOST_ROWS]
    ]
    head = ["| code | cause | what changes | models | keys | reached |", "| --- | --- | --- | ---: | ---: | --- |"]
    rest = [f"\n{len(found) - MOST_ROWS} more causes are left out."] if len(found) > MOST_ROWS else []
    return "\n".join([*head, *rows, *rest]) + "\n"


def _patch(stale: Sequence[Difference]) -> str:
    lines = [line for one in stale if one.is_shown for line in unified(one.path, one.old, one.new)]
    if not lines:
        return ""
    body = "\n".join(lines[:MOST_LINES])
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    rest = f"\n{len(lines) - MOST_LINES} more lines are left out.\n" if len(lines) > MOST_LINES else ""
    return f"\n<details><summary>patch</summary>\n\n{fence}diff\n{body}\n{fence}\n{rest}</details>\n"


def _plain(text: str) -> str:
    """A text in which nothing is Markdown, HTML, a mention or an address."""
    return _PLAIN.sub(lambda found: f"&#{ord(found[0])};", " ".join(text.split()))
