"""The imports, exports and comments of a modular file that the command writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.commands.run_authoring import changes_of
from tests.unit.authoring.test_modularize import OLD, ROOT, library_of, modularized


def test_an_object_may_be_imported_from_where_another_file_imports_it(tmp_path: Path) -> None:
    """Two files import it in different words, and one file from where a conversion takes no configuration class."""
    models = library_of(tmp_path / "transformers")
    (models / "old/configuration_old.py").write_text("class OldConfig:\n    pass\n")
    modeling = models / "old/modeling_old.py"
    modeling.write_text(
        modeling.read_text().replace("\n\n\ndef", "\n\nfrom .configuration_old import OldConfig\n\n\ndef", 1)
    )
    new = "# Copyright 2021 New.\n{}\n\n\nclass New{}:\n    part = {}\n\n\n__all__ = ['New{}']\n"
    folder = models / "new"
    folder.mkdir()
    text = new.format("from ..old.modeling_old import OldConfig", "Model", "OldConfig", "Model")
    (folder / "modeling_new.py").write_text(text.replace("'", '"'))
    text = new.format("from ..old.configuration_old import OldConfig", "Config", "OldConfig", "Config")
    (folder / "configuration_new.py").write_text(text.replace("'", '"'))
    result = modularized(models, "new")
    assert not result.left and result.proof is not None and result.proof.round_trips
    assert "from ..old.configuration_old import OldConfig\n" in result.proof.text


@pytest.mark.parametrize("other", ["from math import sqrt", "from cmath import sqrt"])
def test_another_object_of_the_same_name_is_not_taken_for_the_same(other: str, tmp_path: Path) -> None:
    new = '# Copyright 2021 New.\n{}\n\n\nclass New{}:\n    part = sqrt\n\n\n__all__ = ["New{}"]\n'
    models = library_of(tmp_path, new=new.format("from math import sqrt", "Model", "Model"))
    (models / "new/configuration_new.py").write_text(new.format(other, "Config", "Config"))
    assert bool(modularized(models, "new").left) == ("cmath" in other)


def test_an_import_that_one_file_has_on_a_condition_stays_conditional(tmp_path: Path) -> None:
    guard = "from os import is_available\n\n\nif is_available():\n    import torch\n"
    new = '# Copyright 2021 New.\n{}\n\nclass New{}:\n    part = torch\n\n\n__all__ = ["New{}"]\n'
    models = library_of(tmp_path, new=new.format("import torch\n", "Model", "Model"))
    (models / "new/processing_new.py").write_text(new.format(guard, "Processor", "Processor"))
    result = modularized(models, "new")
    assert not result.left and result.proof is not None
    made = result.proof.conversion.files[str(models / "new/processing_new.py")]
    assert "if is_available():\n    import torch\n" in made
    changes = [change for one in result.proof.differences for change in changes_of(one)]
    assert "modeling_new.py: imported under the condition of another file: `torch`" in changes


CONFIG = 'import math\n\n\nclass NewConfig:\n    part = math\n\n\n__all__ = ["NewConfig"]\n'


def test_what_type_checkers_alone_import_in_one_file_stays_imported_in_the_other(tmp_path: Path) -> None:
    guard = "from typing import TYPE_CHECKING\n\n\nif TYPE_CHECKING:\n    import torch\n"
    new = '# Copyright 2021 New.\n{}\n\nclass New{}:\n    part{} torch\n\n\n__all__ = ["New{}"]\n'
    models = library_of(tmp_path, new=new.format("import torch\n", "Model", " =", "Model"))
    text = new.format(guard, "Processor", ":", "Processor").replace(": torch", ': "torch"')
    (models / "new/processing_new.py").write_text(text)
    (models / "new/configuration_new.py").write_text(OLD.split("import")[0] + CONFIG)
    result = modularized(models, "new")
    assert result.proof is not None and [Path(path).name for path in result.left] == ["modeling_new.py"]


def test_of_two_imports_on_one_condition_the_larger_one_is_written(tmp_path: Path) -> None:
    """A conversion leaves out what a file does not need; it does not join two blocks."""
    guard = "from os import is_available\n\n\nif is_available():\n    import torch\n{}\n\n"
    new = "# Copyright 2021 New.\n" + guard + 'class New{}:\n    part = {}\n\n\n__all__ = ["New{}"]\n'
    models = library_of(tmp_path, new=new.format("    from torch import nn\n", "Model", "(torch, nn)", "Model"))
    (models / "new/processing_new.py").write_text(new.format("", "Processor", "torch", "Processor"))
    result = modularized(models, "new")
    assert not result.left and result.proof is not None and result.proof.text.count("if is_available()") == 1


def test_a_class_of_another_file_that_only_an_annotation_names_stays_imported(tmp_path: Path) -> None:
    models = library_of(tmp_path, new=OLD.replace("Old", "New").replace("2020", "2021"))
    (models / "new/processing_new.py").write_text(
        "# Copyright 2021 New.\nfrom typing import TYPE_CHECKING\n\n\nif TYPE_CHECKING:\n"
        "    from .modeling_new import NewModel\n\n\nclass NewProcessor:\n"
        '    def read(self, output: "NewModel"):\n        return output\n\n\n__all__ = ["NewProcessor"]\n'
    )
    result = modularized(models, "new")
    assert not result.left and result.proof is not None and "(OldModel)" in result.proof.text


def test_a_comment_on_the_origin_of_a_definition_may_go(tmp_path: Path) -> None:
    new = OLD.replace("Old", "New").replace("2020", "2021")
    for comment, count in (("Adapted from models.old.modeling_old.OldModel", 1), ("A comment of its own", 0)):
        text = new.replace("class NewModel", f"# {comment}\nclass NewModel")
        result = modularized(library_of(tmp_path / str(count), new=text), "new")
        assert result.proof is not None and result.proof.round_trips
        assert result.proof.text.count("(OldModel)") == count
        assert result.proof.differences[0].origins == ("NewModel",) * count


def test_an_exported_name_that_comes_along_is_told_to_linters(tmp_path: Path) -> None:
    old = OLD.replace('["OldModel"]', '["OldModel", "OldMLP"]')
    result = modularized(library_of(tmp_path, old=old, new=old.replace("Old", "New").replace("2020", "2021")), "new")
    assert result.proof is not None
    assert '    "NewMLP",  # noqa: F822\n' in result.proof.text and "class NewMLP" not in result.proof.text


def test_the_mistral_of_this_repository_is_what_the_command_writes() -> None:
    result = modularized(ROOT / "models", "mistral")
    assert result.proof is not None and not result.left
    assert result.proof.text == (ROOT / "models/mistral/modular_mistral.py").read_text()


def test_functions_of_one_name_in_two_files_come_along_in_each(tmp_path: Path) -> None:
    """As mask2former's image processors: the name is imported from a generated file, which gives each its own."""
    text = (
        "# Copyright {year} Old.\ndef scale(x):\n    return x * {by}\n\n\nclass {name}:\n"
        "    def whole(self):\n        return self\n\n    def part(self):\n        return None\n\n"
        "    def name(self):\n        return type(self)\n\n    def count(self, x):\n        return scale({x})\n\n\n"
        '__all__ = ["{name}"]\n'
    )
    models = tmp_path / "models"
    for folder, year, prefix, x in (("old", 2020, "Old", "x"), ("new", 2021, "New", "x + 1")):
        (models / folder).mkdir(parents=True)
        for kind, name, by in (("modeling", "Model", 2), ("processing", "Processor", 3)):
            path = models / folder / f"{kind}_{folder}.py"
            path.write_text(text.format(year=year, name=prefix + name, by=by, x=x))
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    result = modularized(models, "new")
    assert not result.left and result.proof is not None
    assert "from .processing_new import scale\n" in result.proof.text
    assert "def scale" not in result.proof.text
