"""A run continues from the rows of a killed run; a file of another kind is left unchanged."""

import json

import pytest
from click.testing import CliRunner

from modular_converter.parallel.cli import main
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.tables import coverage
from modular_converter.parallel.tables.coverage import RowFile


def line(name: str, model: str = "", state: str = "verified") -> str:
    row = {"model": model or name, "state": state, "reason": "", "name": name, "folder": name.partition("folder:")[2]}
    return json.dumps(row) + "\n"


def named(file: RowFile) -> list[str]:
    return [row["model"] for row in file.rows]


@pytest.mark.parametrize("cut", ['{"model": "c", "sta', '{"bad\n', "{"[:0]])
def test_a_cut_last_line_is_replaced(cut, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(line("a") + "\n" + line("b") + cut)
    file = RowFile(path)
    assert named(file) == ["a", "b"]
    assert path.read_text().endswith(cut)
    file.append([json.loads(line("c"))])
    file.append([json.loads(line("d"))])
    assert path.read_text() == line("a") + "\n" + line("b") + line("c") + line("d")
    assert named(RowFile(path)) == named(file) == ["a", "b", "c", "d"]


def test_the_folder_of_a_cut_line_is_done_anew(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(line("a") + line("folder:b", "b1") + line("folder:b", "b2") + line("folder:b", "b3")[:-20])
    file = RowFile(path)
    assert named(file) == ["a"]
    file.append([json.loads(line("folder:b", "b1"))])
    assert path.read_text() == line("a") + line("folder:b", "b1")


def test_a_whole_last_line_without_its_end_is_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(line("a").rstrip())
    RowFile(path).append([json.loads(line("b"))])
    assert path.read_text() == line("a") + line("b")


@pytest.mark.parametrize(
    ("text", "number"),
    [(line("a") + '{"bad\n' + line("b"), 2), ("# notes\n", 1), (line("a") + "[]\n", 2), ('{"other": 1}', 1)],
)
def test_a_bad_line_elsewhere_is_named(text, number, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    with pytest.raises(PlanError, match=f"rows.jsonl: line {number} is not a row of an earlier run; take it out"):
        RowFile(path)
    assert path.read_text() == text


@pytest.mark.parametrize(("name", "code"), [("a", 0), ("b", 1)])
def test_only_what_was_asked_for_counts(name, code, tmp_path, monkeypatch):
    class Idle:
        __init__ = __exit__ = lambda *_: None
        __enter__ = start = lambda self: self

    monkeypatch.setattr(coverage, "RankPool", Idle)
    monkeypatch.setattr(coverage, "_rows", None)
    path = tmp_path / "rows.jsonl"
    path.write_text(line("a") + line("b", state="refused"))
    done = CliRunner().invoke(main, ["coverage", name, "--resume", str(path)])
    assert done.exit_code == code, done.output
    assert "1 of 2 model types verified" in done.output
