"""`modularize --allow`: docstrings and comments of parents in place of the model's own."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter import convert_file
from modular_converter.commands.subcommands import modularize_command
from modular_converter.settings.load import load_settings


pytestmark = pytest.mark.usefixtures("cache")
OLD = '''\
# Copyright 2020 Old.
from torch import nn


class OldMLP(nn.Module):
    """A layer."""

    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.size, 4 * config.size)
        self.down = nn.Linear(4 * config.size, config.size)

    def forward(self, x):
        """Up and down."""
        # first up
        x = self.up(x)
        return self.down(x)


__all__ = ["OldMLP"]
'''
NEW = OLD.replace("Old", "New").replace("2020", "2024").replace("A layer", "The layer of the feedforward block")
NEW = NEW.replace("Up and down.", "Larger, then smaller.").replace("# first up", "# it grows here")


def plant(root: Path, new: str = NEW) -> Path:
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    for model, text in (("old", OLD), ("new", new)):
        (root / f"models/{model}").mkdir(parents=True)
        (root / f"models/{model}/modeling_{model}.py").write_text(text)
    return root


def modularize(root: Path, *options: str) -> Result:
    return CliRunner().invoke(modularize_command, ["new", "--root", str(root), *options])


def lines_with(root: Path, *options: str) -> int:
    (model,) = json.loads(modularize(root, "--dry-run", "--format", "json", *options).stdout)["models"]
    return int(model["modular_lines"])


def test_what_is_allowed_saves_lines(tmp_path: Path) -> None:
    root = plant(tmp_path)
    exact = lines_with(root)
    both = lines_with(root, "--allow", "docstrings,comments")
    assert both < lines_with(root, "--allow", "docstrings") <= exact


def test_the_code_is_the_same_and_the_words_are_the_parents(tmp_path: Path) -> None:
    root = plant(tmp_path)
    done = modularize(root, "--allow", "docstrings,comments")
    assert done.exit_code == 0 and "become those of the parent: NewMLP" in done.stdout
    modular = root / "models/new/modular_new.py"
    assert "class NewMLP(OldMLP):\n    pass" in modular.read_text()
    (text,) = convert_file(modular, load_settings(str(root))).files.values()
    assert '"""A layer."""' in text and "# first up" in text
    assert code(text) == code(NEW)


def code(text: str) -> list[str]:
    """The definitions of a module without their docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body.pop(0)
    return [ast.dump(node) for node in tree.body]


@pytest.mark.parametrize("allowed", ["docstrings", "comments", "docstrings,comments"])
def test_code_is_never_given_up(allowed: str, tmp_path: Path) -> None:
    new = NEW.replace("4 * config.size, config.size)", "4 * config.size, config.size, bias=False)")
    new = new if "docstrings" in allowed else new.replace("Larger, then smaller.", "Up and down.")
    new = new if "comments" in allowed else new.replace("# it grows here", "# first up")
    root = plant(tmp_path, new)
    assert modularize(root, "--allow", allowed).exit_code == 0
    (text,) = convert_file(root / "models/new/modular_new.py", load_settings(str(root))).files.values()
    assert "Larger" not in text and "# it grows here" not in text
    assert code(text) == code(new)


def test_a_method_with_more_than_what_is_allowed_stays(tmp_path: Path) -> None:
    root = plant(tmp_path)
    assert modularize(root, "--allow", "docstrings").exit_code == 0
    (text,) = convert_file(root / "models/new/modular_new.py", load_settings(str(root))).files.values()
    assert "Larger, then smaller." in text and "# it grows here" in text and '"""A layer."""' in text


def test_without_it_nothing_is_given_up(tmp_path: Path) -> None:
    root = plant(tmp_path)
    assert modularize(root).exit_code == 0
    (text,) = convert_file(root / "models/new/modular_new.py", load_settings(str(root))).files.values()
    assert "Larger, then smaller." in text and "# it grows here" in text


def test_other_words_are_refused(tmp_path: Path) -> None:
    done = modularize(plant(tmp_path), "--allow", "docstrings,names")
    assert done.exit_code == 2 and "'names'" in done.stderr
