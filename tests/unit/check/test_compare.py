"""The check: what differs and why, what `--write` does, what a change affects, and which exit code tells it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modular_converter.check.differences import changed_definitions
from modular_converter.commands.check import check_command
from tests.unit.trees import edit, git, run


ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.usefixtures("cache")


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_current_tree_passes_and_is_not_touched(zoo):
    before = snapshot(zoo)
    result = run(zoo)
    assert result.exit_code == 0, result.output
    assert "4 modular files, 9 generated files" in result.stderr
    assert snapshot(zoo) == before


def test_a_chain_of_dependents_is_found_and_fixed_in_one_pass(zoo):
    edit(zoo, "modeling_llama.py", "repeat_kv", "repeat_key_values")
    edit(zoo, "modular_gemma_vision.py", "repeat_kv", "repeat_key_values")
    before = snapshot(zoo)
    result = run(zoo)
    assert result.exit_code == 1, result.output
    assert "modeling_gemma.py:" in result.stderr and "modeling_gemma_vision.py:" in result.stderr
    assert "modeling_llama.py" in result.stderr
    assert snapshot(zoo) == before
    assert run(zoo, "--write").exit_code == 0
    fixed = snapshot(zoo)
    assert fixed != before
    assert run(zoo).exit_code == 0
    assert "written" not in run(zoo, "--fix_and_overwrite").stderr
    assert snapshot(zoo) == fixed


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_edit_in_a_neighbour_is_fixed_at_once(zoo, data):
    path = zoo / "models" / "llama" / "modeling_llama.py"
    lines = path.read_text().split("\n")
    places = [number for number, line in enumerate(lines) if line.strip().startswith("return ")]
    place = data.draw(st.sampled_from(places))
    indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
    lines.insert(place, f"{indent}# {data.draw(st.from_regex('[a-z]{1,9}', fullmatch=True))}")
    path.write_text("\n".join(lines))
    assert run(zoo, "--write").exit_code == 0
    assert run(zoo).exit_code == 0
    assert "written" not in run(zoo, "--write").stderr


def test_a_hand_edit_is_told_from_a_change_of_the_sources(zoo):
    edit(zoo, "modeling_gemma.py", "class GemmaMLP", "class GemmaMlp")
    result = run(zoo, "-f", str(zoo / "models/gemma/modular_gemma.py"))
    assert result.exit_code == 1
    assert "edited by hand since the last commit" in result.stderr and "`GemmaMLP`" in result.stderr
    git(zoo, "commit", "-qam", "by hand")
    assert "edited by hand in" in run(zoo, "gemma").stderr


def test_a_committed_change_of_the_modular_file_is_named(zoo):
    edit(zoo, "modular_gemma.py", "head_dim: int | None = 256", "head_dim: int | None = 128")
    assert "has changed: modular_gemma.py" in run(zoo, "gemma").stderr
    git(zoo, "commit", "-qam", "stale")
    assert "which last wrote it" in run(zoo, "gemma").stderr


def test_without_git_it_cannot_tell_why(zoo):
    shutil.rmtree(zoo / ".git")
    edit(zoo, "modeling_gemma.py", "class GemmaMLP", "class GemmaMlp")
    assert "cannot tell why (" in run(zoo, "gemma").stderr


@pytest.mark.parametrize(
    "put",
    [
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("nowhere"),
        lambda path: None,
    ],
    ids=["a pipe", "a link to itself", "a link to nowhere", "nothing"],
)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_something_in_the_place_of_a_modular_file_is_not_said_to_be_missing(zoo, put):
    modular = zoo / "models/roberta/modular_roberta.py"
    modular.unlink()
    put(modular)
    said = [one for one in run(zoo).stderr.split("\n\n") if "MC403" in one]
    is_there = os.path.lexists(modular)
    assert said and all(("is no file that can be read" in one) == is_there for one in said)
    assert all(("Remove it" in one) != is_there and ("Restore" in one) == is_there for one in said)


def test_a_missing_and_an_orphaned_file_are_findings(zoo):
    (zoo / "models/gemma/modeling_gemma.py").unlink()
    assert "MC402" in run(zoo, "gemma").stderr
    assert run(zoo, "--write").exit_code == 0
    notice = "# This file was automatically" + " generated from the modules in `models/bert`.\n"
    (zoo / "models/bert/__init__.py").write_text(notice)
    assert run(zoo).exit_code == 0
    (zoo / "models/roberta/modular_roberta.py").unlink()
    result = run(zoo)
    assert result.exit_code == 1 and result.stderr.count("MC403") >= 1
    assert (zoo / "models/roberta/modeling_roberta.py").exists()


def test_what_cannot_be_converted_is_never_passed(zoo):
    (zoo / "models/gemma/modular_gemma.py").write_text("class (:\n")
    result = run(zoo, "--write")
    assert result.exit_code == 2 and "1 could not be converted" in result.stderr
    assert run(zoo, "no_such_model").exit_code == 2


def test_a_generated_file_over_the_limit_is_not_read(zoo):
    path = zoo / "models/gemma/modeling_gemma.py"
    with open(path, "r+b") as file:
        file.truncate(50_000_000_000)  # sparse: reading it takes all memory
    for arguments in ((), ("--write",), ("--no-cache",)):
        result = run(zoo, "gemma", *arguments)
        assert result.exit_code == 2 and "MC112" in result.stderr and "modeling_gemma.py" in result.stderr
    assert path.stat().st_size == 50_000_000_000


@pytest.mark.parametrize(
    ("touched", "files"),
    [
        ("models/llama/modeling_llama.py", "3 modular files"),
        ("models/gemma/modular_gemma.py", "3 modular files"),
        ("models/gemma_vision/modeling_gemma_vision.py", "1 modular file,"),
        ("models/bert/modeling_bert.py", "1 modular file,"),
        ("pyproject.toml", "4 modular files"),
        ("models/auto/auto_mappings.py", "4 modular files"),
        ("README.md", "no modular file is affected"),
    ],
)
def test_changed_since_takes_what_a_change_affects(zoo, touched, files):
    with open(zoo / touched, "a") as file:
        file.write("\n# touched\n")
    assert files in run(zoo, "--changed-since", "HEAD").stderr


@pytest.mark.parametrize(
    "ref", ["no-such-ref", "--output=x", "", "HEAD; touch x", "HEAD..main", "HEAD^{tree}", "HEAD:models"]
)
def test_an_unknown_ref_is_an_error(zoo, ref):
    result = run(zoo, f"--changed-since={ref}")
    assert result.exit_code == 2 and "git knows no commit" in result.stderr


def test_a_shallow_clone_says_so(zoo, tmp_path):
    git(zoo, "commit", "-q", "--allow-empty", "-m", "second")
    subprocess.run(["git", "clone", "-q", "--depth=1", zoo.as_uri(), str(tmp_path / "clone")], check=True)
    result = run(tmp_path / "clone", "--changed-since", "HEAD~1")
    assert result.exit_code == 2 and "shallow clone" in result.stderr


def test_changed_since_without_git_is_an_error(zoo, monkeypatch):
    shutil.rmtree(zoo / ".git")
    assert run(zoo, "--changed-since", "HEAD").exit_code == 2
    monkeypatch.setenv("PATH", "")
    assert "git could not be started" in run(zoo, "--changed-since", "HEAD").stderr


def test_definitions_that_differ_are_named():
    assert changed_definitions("a = 1\nb = 2\n", "a = 1\nb = 3\nc = 4\n") == ["b", "c"]


@pytest.mark.parametrize(("mark", "below"), [("pyproject.toml", "models/gemma"), (".git", "docs/deep")])
def test_the_models_are_found_from_any_folder_of_the_project(zoo, monkeypatch, mark, below):
    if mark == ".git":
        (zoo / "pyproject.toml").unlink()
    (zoo / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(zoo / below)
    result = CliRunner().invoke(check_command, [])
    assert "4 modular files" in result.stderr, result.output


def test_the_search_for_models_ends_at_the_nearest_project(zoo, monkeypatch):
    (zoo / "inner/deep").mkdir(parents=True)
    (zoo / "inner/pyproject.toml").write_text("")
    monkeypatch.chdir(zoo / "inner/deep")
    result = CliRunner().invoke(check_command, [])
    assert result.exit_code == 2 and "no folder of models found" in result.stderr
