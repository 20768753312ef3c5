"""`--stdin-filename`: a text on the standard input takes the place of a modular file, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from tests.unit.trees import HEIR


CHANGED = HEIR.format(old="base", new="heir", Old="Base", New="Heir").replace("    pass", "    extra = 1")


def run(command: click.Command, tree: Path, text: str | bytes, *options: str, name: str = "heir") -> Result:
    before = {path: path.read_bytes() for path in tree.rglob("*.py")}
    path = tree / f"models/{name}/modular_{name}.py"
    done = CliRunner().invoke(command, ["--stdin-filename", str(path), *options], input=text)
    assert {path: path.read_bytes() for path in tree.rglob("*.py")} == before
    return done


def test_the_generated_text_is_printed(tree: Path) -> None:
    current = (tree / "models/heir/modeling_heir.py").read_text()
    done = run(convert_command, tree, (tree / "models/heir/modular_heir.py").read_bytes())
    assert (done.exit_code, done.stdout) == (0, current)
    done = run(convert_command, tree, CHANGED)
    assert (done.exit_code, "    extra = 1\n" in done.stdout) == (0, True)
    assert "1 generated file (printed)" in done.stderr


def test_several_files_are_headed_by_their_names(tree: Path) -> None:
    text = f"{CHANGED}\n\nclass HeirConfig:\n    size = 1\n"
    done = run(convert_command, tree, text)
    names = [line.split("/")[-1] for line in done.stdout.splitlines() if line.startswith("==> ")]
    assert names == ["configuration_heir.py <==", "modeling_heir.py <=="]


def test_a_model_need_not_exist(tree: Path) -> None:
    text = CHANGED.replace("Heir", "Fresh").replace("heir", "fresh")
    done = run(convert_command, tree, text, name="fresh")
    assert (done.exit_code, "class FreshMLP(nn.Module):" in done.stdout) == (0, True)


def test_the_diff_is_against_the_disk(tree: Path) -> None:
    done = run(convert_command, tree, CHANGED, "--diff")
    assert (done.exit_code, "+    extra = 1" in done.stdout) == (1, True)


def test_the_check_compares_with_the_disk(tree: Path) -> None:
    assert run(check_command, tree, (tree / "models/heir/modular_heir.py").read_bytes()).exit_code == 0
    done = run(check_command, tree, CHANGED)
    assert done.exit_code == 1
    assert "MC401" in done.stderr and "by hand" not in done.stderr


@pytest.mark.parametrize("command", [convert_command, check_command])
@pytest.mark.parametrize(("text", "code"), [(b"\xff", "MC102"), ("class A(\n", "MC101")])
def test_a_text_that_cannot_be_read_is_told(tree: Path, command: click.Command, text: str | bytes, code: str) -> None:
    done = run(command, tree, text)
    assert (done.exit_code, code in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        (convert_command, ("--fix",), "--fix"),
        (convert_command, ("--output-dir", "x"), "--output-dir"),
        (convert_command, ("all",), "leave out"),
        (convert_command, ("--watch",), "leave out"),
        (check_command, ("--write",), "--write"),
        (check_command, ("--add-ignores",), "--add-ignores"),
        (check_command, ("heir",), "leave out"),
    ],
)
def test_what_contradicts_it_is_refused(
    tree: Path, command: click.Command, options: tuple[str, ...], words: str
) -> None:
    done = run(command, tree, CHANGED, *options)
    assert (done.exit_code, words in done.stderr) == (2, True)


def test_another_name_is_refused(tree: Path) -> None:
    done = CliRunner().invoke(convert_command, ["--stdin-filename", str(tree / "models/x.py")], input="")
    assert (done.exit_code, "MC111" in done.stderr) == (2, True)
