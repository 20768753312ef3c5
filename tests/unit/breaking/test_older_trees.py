"""Trees to compare with that are damaged, linked, or not to be had, and arguments that mean no model."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modular_converter.breaking import older
from modular_converter.breaking.older import older_tree, state_of_folder, state_of_older
from modular_converter.findings import ConversionError
from modular_converter.settings.load import profile_settings
from tests.unit.breaking.test_compare_trees import library, told
from tests.unit.trees import commit, edit, run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("made"))


@pytest.fixture
def zoo(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "zoo"))


def test_the_state_of_a_tree_changes_with_its_files_alone(zoo: Path) -> None:
    first = state_of_folder(str(zoo))
    (zoo / "models/llama/notes.txt").write_text("x")
    (zoo / "__pycache__").mkdir()
    (zoo / "__pycache__/more.py").write_text("x")
    assert first and state_of_folder(str(zoo)) == first
    edit(zoo, "modeling_llama.py", "use_cache=True", "use_cache=False")
    second = state_of_folder(str(zoo))
    (zoo / "models/phi").rename(zoo / "models/psi")
    assert len({first, second, state_of_folder(str(zoo)), ""}) == 4


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_a_state_that_cannot_be_known_is_not_told(zoo: Path, tmp_path: Path) -> None:
    models = str(zoo / "models")
    assert state_of_older(str(tmp_path / "none.whl"), models) == state_of_older("no-such-commit", models) == ""
    assert state_of_older("zoo==1.0", models) == "zoo==1.0" and state_of_folder(str(tmp_path / "none")) == ""
    os.symlink(zoo / "models/phi", zoo / "models/linked", target_is_directory=True)
    assert state_of_folder(str(zoo)) == ""
    (zoo / "models/linked").unlink()
    os.symlink("none.py", zoo / "models/broken.py")
    assert state_of_folder(str(zoo)) == ""


def test_a_file_of_the_older_tree_that_is_no_text_is_passed_over(zoo: Path) -> None:
    (zoo / "models/phi/modeling_extra.py").write_bytes(b"# \\xff\\n")
    commit(zoo, new=True)
    edit(zoo, "modeling_llama.py", "use_cache=True", "use_cache=False")
    codes = [one["code"] for one in told(zoo, "HEAD", "llama")]
    assert codes == ["MC615"]


DOWNLOADS = {
    "what pip says last": (
        SimpleNamespace(stderr="looking\\nno matching distribution\\n"),
        "no matching distribution",
    ),
    "nothing": (SimpleNamespace(stderr=""), "no wheel came"),
    "it takes too long": (subprocess.TimeoutExpired("pip", 300), "timed out after 300 seconds"),
    "there is no such program": (FileNotFoundError(2, "No such file or directory"), "No such file or directory"),
}


@pytest.mark.parametrize("case", DOWNLOADS)
def test_a_release_that_cannot_be_had_is_told(
    case: str, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, reason = DOWNLOADS[case]

    def ran(*_: Any, **more: Any) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(older.subprocess, "run", ran)
    with pytest.raises(ConversionError) as error:
        older_tree("zoo==1.0", str(zoo / "models"), profile_settings(), str(tmp_path / "cache"))
    message = error.value.findings[0].message
    assert f"pip cannot download it ({reason})"[:-1] in message or reason in message
    assert "give the path of a wheel instead" in message


ARGUMENTS = {
    "unheard": ("MC111 `unheard` leads to", ""),
    "unheard all": ("MC111 `unheard` leads to", "llama"),
    "unheard gemma": ("MC111 `unheard` leads to", "gemma"),
    "llama": ("", "llama"),
    "llama phi": ("", "llama"),
    "--root nowhere": ("nowhere", ""),
}


@pytest.mark.parametrize("given", ARGUMENTS)
def test_what_means_no_model_is_told_and_the_others_are_compared(given: str, zoo: Path, made: Path) -> None:
    lost, reached = ARGUMENTS[given]
    edit(zoo, "modeling_llama.py", "use_cache=True", "use_cache=False")
    done = run(zoo, "--breaking", "--against", str(made), "--no-cache", *given.split())
    assert (done.exit_code, lost in done.stderr, "compared with" in done.stderr) == (
        2 if lost else 0,
        True,
        bool(reached),
    )
    assert ("MC615" in done.stderr) == (reached == "llama"), done.output
