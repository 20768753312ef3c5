"""Diffs: as patches they are right whatever the texts, they end in time, and they are fit for a terminal."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from modular_converter.reporting import diffs
from modular_converter.reporting.diffs import NO_NEWLINE, matching_blocks, unified


FEW = st.lists(st.sampled_from("abcdefgh"), max_size=40)


def body(old: str | None, new: str) -> list[str]:
    return unified("m.py", old, new)[2:]


@settings(deadline=None)
@given(FEW, FEW)
def test_matches_are_equal_runs_in_order(old, new):
    found = matching_blocks(old, new)
    for start, new_start, size in found:
        assert size and old[start : start + size] == new[new_start : new_start + size]
    for (a, b, size), (c, d, _) in zip(found, found[1:]):
        assert a + size <= c and b + size <= d and (a + size, b + size) != (c, d)
    if set(old) & set(new):
        assert found


@settings(deadline=None, max_examples=60)
@given(old=FEW, new=FEW, ends=st.tuples(st.booleans(), st.booleans()))
def test_git_makes_the_new_text_of_the_old_one(tmp_path_factory, old, new, ends):
    folder = tmp_path_factory.mktemp("patch")
    texts = ["\n".join(lines) + ("\n" if end and lines else "") for lines, end in zip((old, new), ends)]
    patch = "\n".join(["--- a/m.py", "+++ b/m.py", *body(*texts)]) + "\n"
    if texts[0] == texts[1]:
        assert not body(*texts)
        return
    (folder / "m.py").write_text(texts[0])
    command = ["git", "apply", "--unidiff-zero", "--whitespace=nowarn", "-"]
    subprocess.run(command, cwd=folder, input=patch, text=True, check=True, capture_output=True)
    assert (folder / "m.py").read_text() == texts[1]


def test_two_edits_far_apart_are_two_hunks():
    old = [f"line {number}\n" for number in range(8000)]
    new = [*old[:10], "new\n", *old[10:7000], "other\n", *old[7001:]]
    lines = body("".join(old), "".join(new))
    assert [line for line in lines if line[:1] in "+-"] == ["+new", "-line 7000", "+other"]
    assert len([line for line in lines if line.startswith("@@")]) == 2 and len(lines) == 2 + 7 + 8


def test_a_missing_end_of_the_last_line_is_shown():
    assert body("a\nb", "a\nb\n") == ["@@ -1,2 +1,2 @@", " a", "-b", NO_NEWLINE, "+b"]


def test_other_line_ends_are_shown():
    assert body("a\r\n", "a\n") == ["@@ -1 +1 @@", "-a\\x0d", "+a"]


def test_a_strangers_file_is_compared_in_time():
    """Many lines, few distinct ones: difflib alone takes longer than anybody waits."""
    pick = random.Random(0)
    old = "".join(f"    x{pick.randrange(150)} = 1\n" for _ in range(60_000))
    new = "".join(f"    x{pick.randrange(150)} = 1\n" for _ in range(60_000))
    started = time.process_time()
    assert len(unified("m.py", old, new)) > 1000
    assert len(unified("m.py", old, new[: len(new) // 200])) > 1000
    assert time.process_time() - started < 10


def test_beyond_the_bound_the_middle_is_replaced(monkeypatch):
    old, new = "aabbab", "bbaaba"
    assert sum(block.size for block in matching_blocks(old, new)) >= 3
    monkeypatch.setattr(diffs, "MOST_STEPS", 10)
    assert matching_blocks("=" + old + "=", "=" + new + "=") == [(0, 0, 1), (7, 7, 1)]


def test_lines_are_cut_and_harmless(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = unified(
        str(tmp_path / "x\n::stop-commands::t" / "m.py"), "same\n" + "a" * 10_000, "same\n\x1b[2J\x9b\u202e\t."
    )
    assert lines[0] == "--- a/x\\x0a::stop-commands::t/m.py"
    assert max(map(len, lines)) < 320 and lines[4].endswith("a…")
    assert "+\\x1b[2J\\x9b\\u202e\t." in lines
    assert body("::stop-commands::t\n##[group]x\n", "::stop-commands::t\n##[group]x\nb\n")[1:3] == [
        " \\x3a:stop-commands::t",
        " \\x23#[group]x",
    ]
