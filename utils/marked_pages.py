"""The parts of a page that scripts write: between `<!-- name: start -->` and `<!-- name: end -->`."""

from __future__ import annotations

from pathlib import Path


def write_part(path: Path, name: str, text: str) -> None:
    """Replace the part of a page that has this name. Raises `SystemExit` where the page has no such part."""
    start, end = f"<!-- {name}: start -->\n", f"<!-- {name}: end -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{path} has no lines {start.strip()} and {end}")
    path.write_text(f"{before}{start}{text.rstrip()}\n{end}{after}", encoding="utf-8")
