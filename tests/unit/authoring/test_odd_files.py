"""Flat files as nobody would write them: what a conversion would lose or could not say stays, with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.api import convert_paths
from modular_converter.authoring.sources import files_in_circles
from modular_converter.commands.subcommands import modularize_command
from modular_converter.settings.load import load_settings
from tests.unit.authoring.test_modularize import OLD, library_of, modularized, opened


pytestmark = pytest.mark.usefixtures("cache")


def test_a_list_of_exports_that_is_computed_is_not_lost(tmp_path: Path) -> None:
    new = OLD.replace("Old", "New").replace("2020", "2021").replace('["NewModel"]', '[name for name in ["NewModel"]]')
    result = modularized(library_of(tmp_path, new=new), "new")
    assert result.proof is None
    (reason,) = result.left.values()
    assert "`__all__`" in reason


@pytest.mark.parametrize("text", ["", "# Copyright 2021 New.\n"])
def test_a_file_without_a_class_stays(text: str, tmp_path: Path) -> None:
    result = modularized(library_of(tmp_path, new=text), "new")
    assert result.proof is None
    assert list(result.left.values()) == ["not generated: the file, since it has no class"]


def test_a_file_of_the_same_model_may_be_imported_like_another_models(tmp_path: Path) -> None:
    imported = "import torch\nfrom ..new.configuration_new import NewConfig\n"
    new = OLD.replace("Old", "New").replace("2020", "2021").replace("import torch\n", imported, 1)
    flat, index, library = opened(
        library_of(tmp_path, new=new.replace("self.size =", "self.kind = NewConfig =")), "new"
    )
    assert files_in_circles(flat, index, library) == {}


def test_models_that_import_from_each_other_do_not_become_a_circle(tmp_path: Path) -> None:
    """Both are modularized in one run, and all that was written is converted in one run."""
    texts = {}
    for model, other in (("one", "two"), ("two", "one")):
        imported = f"import torch\nfrom ..{other}.modeling_{other} import {other.title()}Model\n"
        text = OLD.replace("Old", model.title()).replace("2020", "2021").replace("import torch\n", imported, 1)
        texts[model] = text.replace("self.size =", f"self.other = {other.title()}Model\n        self.size =")
    models = library_of(tmp_path, **texts)
    done = CliRunner().invoke(modularize_command, ["one", "two", "--root", str(models)])
    assert done.exit_code == 1
    assert (
        "modeling_two.py stays as it is: it imports OneModel from ..one.modeling_one, whose model takes" in done.stdout
    )
    written = sorted(models.glob("*/modular_*.py"))
    assert [path.name for path in written] == ["modular_one.py"]
    assert not any(one.failed for one in convert_paths(written, load_settings(str(models))))


@pytest.mark.parametrize(
    ("change", "name"), [(("return x * 2", "return x*2"), "scale"), (("scale(x)", "scale( x )"), "scale, NewMLP")]
)
def test_what_the_formatter_would_change_is_named(change: tuple[str, str], name: str, tmp_path: Path) -> None:
    new = OLD.replace("Old", "New").replace("2020", "2021").replace(*change)
    (reason,) = modularized(library_of(tmp_path, new=new), "new").left.values()
    assert reason == f"generated otherwise: {name}; the formatter changes {name}: format the file first"


def test_the_headline_counts_the_files_that_come_back_and_names_those_that_stay(tmp_path: Path) -> None:
    models = library_of(tmp_path, new=OLD.replace("Old", "New").replace("2020", "2021"))
    (models / "new" / "configuration_new.py").write_text("# Copyright 2021 New.\n\nSIZE = 1\n")
    lines = OLD.count("\n")
    arguments = ["new", "--root", str(models), "--dry-run"]
    shown = CliRunner().invoke(modularize_command, arguments).stdout
    (model,) = json.loads(CliRunner().invoke(modularize_command, [*arguments, "--format", "json"]).stdout)["models"]
    assert (model["flat_lines"], model["lines_back"]) == (lines + 3, lines) and model["modular_lines"] < lines
    assert list(model["left"]) == ["configuration_new.py"]
    assert shown.startswith(f"new: {lines} of {lines + 3} lines -> {model['modular_lines']}, inherits from old\n")
    assert "configuration_new.py stays as it is: " in shown


def test_nothing_is_offered_that_saves_nothing(tmp_path: Path) -> None:
    models = library_of(
        tmp_path, new="# Copyright 2021 New.\n\n\nclass NewModel:\n    def run(self):\n        return 1\n"
    )
    done = CliRunner().invoke(modularize_command, ["new", "--root", str(models)])
    assert done.exit_code == 1 and done.stdout.startswith("new: no modular file gives back any of its files\n")
    assert not (models / "new" / "modular_new.py").exists()
