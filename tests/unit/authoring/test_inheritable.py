"""MC325: definitions that are written out though another model has them, where somebody asks for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command


pytestmark = pytest.mark.usefixtures("cache")
OLD = """\
# Copyright 2020 Old.
from torch import nn


def scale(x):
    y = x * 2
    return y


class OldMLP(nn.Module):
    def forward(self, x):
        # Twice.
        return scale(x)


class OldHead(nn.Module):
    def forward(self, x):
        return scale(x) + 1
"""


def plant(root: Path, *edits: tuple[str, str], settings: str = "") -> Path:
    """A modular file of the model `new` that is `old` written out, but for some edits."""
    (root / "pyproject.toml").write_text(f'[tool.modular-converter]\nruff-config = "profile"\n{settings}')
    new = OLD.replace("Old", "New").replace("2020", "2021") + '\n\n__all__ = ["NewMLP", "NewHead"]\n'
    for before, after in edits:
        assert before in new
        new = new.replace(before, after)
    for name, text in (("old/modeling_old.py", OLD), ("new/modular_new.py", new)):
        (root / "models" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "models" / name).write_text(text)
    path = root / "models/new/modular_new.py"
    assert CliRunner().invoke(convert_command, [str(path)]).exit_code == 0
    return path


def check(path: Path, *options: str) -> Result:
    return CliRunner().invoke(check_command, [str(path), *options])


def findings(path: Path) -> list[str]:
    return [one["message"] for one in json.loads(check(path, "--select", "MC325", "--format", "json").stdout)]


def test_it_names_the_class_and_the_function_to_take(tmp_path: Path) -> None:
    path = plant(tmp_path)
    done = check(path, "--select", "inheritable-definition")
    assert done.exit_code == 0 and check(path, "--select", "MC325", "--strict").exit_code == 1
    found = "modular_new.py:5:5: warning MC325 `scale` is written out, and `scale` of ..old.modeling_old is the same"
    assert found in done.stderr
    assert "from ..old.modeling_old import OldMLP` and `class NewMLP(OldMLP): pass`" in done.stderr


def test_it_is_off_and_is_counted_without_being_a_finding(tmp_path: Path) -> None:
    path = plant(tmp_path)
    silent, counted = check(path), check(path, "--statistics")
    assert (silent.exit_code, silent.output.count("MC325")) == (0, 0)
    assert (counted.exit_code, counted.output.count("written out")) == (0, 0)
    assert "3  MC325 inheritable-definition" in counted.stderr


def test_a_check_without_it_reads_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = plant(tmp_path)
    monkeypatch.setitem(sys.modules, "modular_converter.authoring.sources", None)
    assert check(path).exit_code == 0


@pytest.mark.parametrize(
    "edit",
    [
        ("return scale(x) + 1", "return scale(x) + 2"),
        ("return scale(x) + 1", "return scale(x)  + 1  # once more"),
        ("2021", "2019"),
        ("class NewHead(nn.Module)", "class NewHead(NewMLP)"),
    ],
)
def test_what_is_not_the_same_or_not_older_is_no_neighbours(edit: tuple[str, str], tmp_path: Path) -> None:
    assert not any("NewHead" in one for one in findings(plant(tmp_path, edit)))


def test_what_a_neighbour_takes_from_this_model_is_not_told(tmp_path: Path) -> None:
    path = plant(tmp_path)
    heir = "from ..new.modeling_new import NewMLP\n\n\nclass OldMLP(NewMLP):\n    pass\n"
    (tmp_path / "models/old/modular_old.py").write_text(heir)
    assert findings(path) == []


def test_comments_and_settings_silence_it(tmp_path: Path) -> None:
    comment = ("class NewHead(nn.Module):", "class NewHead(nn.Module):  # modular: ignore[MC325]")
    path = plant(tmp_path, comment)
    assert [one.split("`")[1] for one in findings(path)] == ["scale", "NewMLP"]
    assert check(path).exit_code == 0, "a rule that is off leaves no comment unused"
    path = plant(tmp_path, settings='ignore = ["MC325"]\n')
    assert findings(path) == []


def test_settings_switch_it_on(tmp_path: Path) -> None:
    path = plant(tmp_path, settings='select = ["MC", "MC325"]\n')
    assert check(path).stderr.count("MC325") == 3
    path = plant(tmp_path, settings='select = ["MC3"]\n')
    assert "MC325" not in check(path).output


def test_only_rules_that_are_off_are_selected(tmp_path: Path) -> None:
    done = check(plant(tmp_path), "--select", "MC309")
    assert done.exit_code == 2 and "is reported anyway" in done.output and "MC325" in done.output
