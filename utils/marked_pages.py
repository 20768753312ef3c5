"""The parts of a page that scripts write: between `<!-- name: start -->` and `<!-- name: end -->`."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path


def write_part(path: Path, name: str, text: str) -> None:
    """Replace the part of a page that has this name. Raises `SystemExit` where the page has no such part."""
    start, end = f"<!-- {name}: start -->\n", f"<!-- {name}: end -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{path} has no lines {start.strip()} and {end}")
    path.write_text(f"{before}{start}{text.rstrip()}\n{end}{after}", encoding="utf-8")


CHANGES = Path(__file__).parents[1] / "docs" / "figures" / "change.md"
"""The page of figures about what changes mean, and about merges."""


def write_outcomes(part: str, what: str, made: str, outcomes: Mapping[str, int]) -> None:
    """Write a table of the outcomes of random trials; one that begins with "wrong" counts as wrong.

    Args:
        part: the part of the page.
        what: what was tried, in the plural.
        made: seed and versions.
        outcomes: outcome -> how often.
    """
    wrong = sum(count for outcome, count in outcomes.items() if outcome.startswith("wrong"))
    names = [outcome for outcome in sorted(outcomes) if not outcome.startswith("wrong")]
    columns = [what, *names, "wrong"]
    numbers = [str(one) for one in (sum(outcomes.values()), *(outcomes[one] for one in names), wrong)]
    lines = [columns, ["---:"] * len(columns), numbers]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    write_part(CHANGES, part, f"{table}\n{made}, {datetime.date.today():%d %B %Y}\n")
