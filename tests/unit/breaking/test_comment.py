"""The comment on a pull request is bounded, and everything in it is whole."""

from __future__ import annotations

import re

import pytest

from modular_converter.breaking.report import CauseGroup
from modular_converter.breaking.values import CodePlace
from modular_converter.check.compare import Difference
from modular_converter.commands.run_breaking import MOST_CHARACTERS, comment
from modular_converter.findings import Finding, Location
from modular_converter.rules import by_code


def text_of(files: int, causes: int, lines: int, length: int, word: str = "x") -> str:
    old = "".join(f"{number}\n" for number in range(10 * lines))
    new = "".join(f"{number}\n" if number % 10 else f"{word * length}\n" for number in range(10 * lines))
    finding = Finding(by_code("MC601"), Location("a.py", 1), word * length)
    stale = [Difference(f"{number}.py", "modular_a.py", old, new, (finding,)) for number in range(files)]
    cause = CauseGroup(CodePlace("a.py", 1), "key-removed", word * length, ())
    return comment(stale, [cause] * causes, str)


@pytest.mark.parametrize(
    ("length", "word"),
    [
        pytest.param(length, word, marks=[pytest.mark.slow] if length > 900 and word != "x" else [])
        for length in (1, 900, 70_000)
        for word in ("x", "|", "`")
    ],
)
@pytest.mark.parametrize("lines", [1, 40])
def test_what_is_left_out_is_left_out_whole(word: str, length: int, lines: int) -> None:
    text = text_of(30, 60, lines, length, word)
    assert len(text) <= MOST_CHARACTERS
    rows = [line for line in text.split("\n") if line.startswith("| MC")]
    assert all(line.count(" | ") == 5 and line.endswith(" |") for line in rows)
    listed = [line for line in text.split("\n") if line.startswith("* ")]
    hunks = re.findall(r"^@@ -(\d+),(\d+) [^\n]*\n((?:[-+ ][^\n]*\n)+)", text, re.MULTILINE)
    assert len(hunks) == text.count("\n@@ ")
    for _, size, body in hunks:
        lines_of = body.split("\n")[:-1]
        shown = [one for one in lines_of if not one.startswith(("--- ", "+++ "))]
        assert sum(not one.startswith("+") for one in shown) == int(size)
    counts = {"file": (30, len(listed)), "cause": (60, len(rows)), "hunk": (30 * lines, len(hunks))}
    for noun, (every, kept) in counts.items():
        left = re.search(
            rf"^(\d+) {noun}s? left out here: `check-modular-conversion[^`]*` shows all\.$", text, re.MULTILINE
        )
        assert kept + (int(left[1]) if left else 0) == every
    assert text.endswith("</details>\n")


def test_what_fits_is_there_as_a_whole() -> None:
    text = text_of(1, 1, 1, 9)
    assert "left out" not in text
    assert text.count("xxxxxxxxx") == 3
