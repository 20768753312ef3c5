"""The report for people: `path:line:col: error CODE message`, the line with a caret, and the help."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from modular_converter.findings import Finding, Location, Severity
from modular_converter.reporting import display
from modular_converter.reporting.display import names_a_file, shown_path


TAB = "    "
BEFORE = 100
"""Characters before the place that are shown of a long line."""
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow"}


def render(findings: Iterable[Finding], folder: str) -> str:
    """Plain text, for files and other programs."""
    return "".join(text for finding in findings for text, _ in _pieces(finding, folder))


def render_rich(findings: Sequence[Finding], folder: str) -> str:
    """The same text with the colours of a terminal. It is never wrapped, so that places stay clickable."""
    if not findings:
        return ""
    from rich.console import Console
    from rich.text import Text

    buffer = io.StringIO()
    console = Console(file=buffer, force_terminal=True, color_system="standard", highlight=False, soft_wrap=True)
    for finding in findings:
        console.print(Text.assemble(*_pieces(finding, folder)), end="")
    return buffer.getvalue()


def excerpt(finding: Finding) -> tuple[str, str, str] | None:
    """The line number, the offending line, and the carets below it; of a long line, the part around the place.

    None when the line is not known.
    """
    line = finding.source_line
    if not line.strip():
        return None
    location = finding.location
    start = min(location.column, len(line) + 1) - 1
    end = max(start, _end(location, len(line)))
    first = max(0, start - BEFORE) if len(line) > display.WIDEST else 0
    last = first + display.WIDEST
    before, marked = ("…" if first else "") + line[first:start], line[start : min(end, last)]
    after = line[min(end, last) : last] + ("…" if len(line) > last else "")
    before, marked, after = (display.escaped(piece).replace("\t", TAB) for piece in (before, marked, after))
    return (
        str(location.line),
        display.harmless(before + marked + after),
        " " * _width(before) + "^" * max(1, _width(marked)),
    )


def _pieces(finding: Finding, folder: str) -> list[tuple[str, str]]:
    """The text of one finding in order, each part with its style."""
    location, style = finding.location, STYLES[finding.severity]
    place = display.harmless(shown_path(location.path, folder))
    if names_a_file(location.path):
        place += f":{location.line}:{location.column}"
    pieces = [
        (f"{place}: ", "bold"),
        (f"{finding.severity.value} {finding.code}", style),
        (f" {display.message(finding.message)}\n", ""),
    ]
    found = excerpt(finding)
    if found is not None:
        number, line, carets = found
        pieces += [(f"{number:>5} | ", "dim"), (f"{line}\n", ""), ("      | ", "dim"), (f"{carets}\n", style)]
    if finding.help:
        pieces += [("  help: ", "bold cyan"), (f"{display.message(finding.help)}\n", "")]
    if finding.fix:
        pieces += [("  fix: ", "bold cyan"), (f"{display.message(finding.fix.title)} ({finding.applicability})\n", "")]
    return pieces


def _end(location: Location, length: int) -> int:
    """Where the marked part of the first line ends, from 0."""
    if location.end_line is None or location.end_column is None:
        return location.column
    return location.end_column - 1 if location.end_line == location.line else length


def _width(text: str) -> int:
    """How many cells a text takes on a terminal: East Asian characters two, combining ones none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
