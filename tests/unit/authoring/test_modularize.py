"""Flat models become modular files that convert back; what does not come back stays, and says why."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modular_converter.authoring import modularize as modularize_module
from modular_converter.authoring.draft import How
from modular_converter.authoring.flat_model import FlatModel, read_flat_model
from modular_converter.authoring.library_index import LibraryIndex, read_index
from modular_converter.authoring.modularize import Modularized, modularize
from modular_converter.convert.schedule import heirs_of
from modular_converter.convert.source.library import Library
from modular_converter.settings.load import load_settings


ROOT = Path(__file__).parents[3]
OLD = """\
# Copyright 2020 Old.
import torch
from torch import nn


def scale(x):
    return x * 2


class OldMLP(nn.Module):
    def forward(self, x):
        return scale(x)


class OldModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mlp = OldMLP(config)
        self.size = torch.tensor(config.size)


__all__ = ["OldModel"]
"""


def library_of(root: Path, **texts: str) -> Path:
    """A tree with a file `modeling_<model>.py` for each text."""
    root.mkdir(exist_ok=True)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    for model, text in {"old": OLD, **texts}.items():
        path = root / "models" / model / f"modeling_{model}.py"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return root / "models"


def opened(models: Path, model: str) -> tuple[FlatModel, LibraryIndex, Library]:
    library = Library(load_settings(str(models)))
    return (
        read_flat_model(str(models / model), model, library),
        read_index(str(models), library, cached=False),
        library,
    )


def modularized(models: Path, model: str) -> Modularized:
    return modularize(*opened(models, model))


@pytest.mark.parametrize("model", ["gemma", "roberta"])  # mistral: test_modularize_imports.py
def test_our_generated_models_come_back_byte_for_byte(model: str) -> None:
    result = modularized(ROOT / "models", model)
    assert result.proof is not None and not result.left
    assert {file.path: file.text for file in result.flat.files} == result.proof.conversion.files
    human = (ROOT / "models" / model / f"modular_{model}.py").read_text()
    assert result.proof.lines <= human.count("\n")


def test_a_twin_says_nothing_and_what_it_needs_comes_along(tmp_path: Path) -> None:
    new = OLD.replace("Old", "New").replace("2020", "2021")
    result = modularized(library_of(tmp_path, new=new), "new")
    assert result.proof is not None
    assert result.proof.text == (
        "# Copyright 2021 New.\nfrom ..old.modeling_old import OldModel\n\n\n"
        'class NewModel(OldModel):\n    pass\n\n\n__all__ = ["NewModel"]\n'
    )


def test_a_twin_that_no_heir_gives_comes_along(tmp_path: Path) -> None:
    """A merge puts attributes above methods, so that an heir would have another order."""
    old = OLD.replace("        return scale(x)\n", "        return scale(x)\n\n    __hash__ = None\n")
    new = old.replace("Old", "New").replace("2020", "2021")
    new = new.replace("config.size)\n", "config.size)\n\n    def size(self):\n        return 1\n")
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert result.proof.draft.how["NewMLP"] is How.ALONG and "class NewMLP" not in result.proof.text


def test_a_class_that_only_a_table_uses_comes_along_with_the_table(tmp_path: Path) -> None:
    """As sam's attention classes: an heir of its own would stand below the table, which needs it above."""
    table = 'OLD_CLASSES = {"mlp": OldMLP}\n\n\n'
    old = OLD.replace("class OldModel", table + "class OldModel").replace(
        "= OldMLP(config)", '= OLD_CLASSES["mlp"](config)'
    )
    new = old.replace("Old", "New").replace("OLD", "NEW").replace("2020", "2021")
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert result.proof.text.count("class ") == 1 and "class NewModel(OldModel):\n    pass" in result.proof.text


def test_one_class_under_two_renamings_is_one_parent() -> None:
    """Else the parents that could take its place would not be tried."""
    kinds = [("a", "x"), ("a", "x"), ("b", "x"), ("a", "y")]
    some: list[Any] = [
        SimpleNamespace(source=SimpleNamespace(path=path), heir=SimpleNamespace(text=text)) for path, text in kinds
    ]
    assert modularize_module._distinct(some) == [some[0], some[2], some[3]]


def test_two_statements_in_one_line_of_a_parent_are_those_of_two_lines(tmp_path: Path) -> None:
    old = OLD.replace("        self.size", "        self.one = 1; self.two = 2\n        self.size")
    new = old.replace("Old", "New").replace("2020", "2021").replace("1; ", "1\n        ")
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "class NewModel(OldModel):\n    pass" in result.proof.text


def test_only_what_a_parent_has_in_another_layout_is_written(tmp_path: Path) -> None:
    """A trailing comma keeps a call on several lines, in the parent and in its heirs."""
    old = OLD.replace("torch.tensor(config.size)", "torch.tensor(\n            config.size,\n        )")
    old = old.replace(
        "\n\n__all__", "\n    def forward(self, x):\n        y = self.mlp(x)\n        return y\n\n\n__all__"
    )
    new = (
        old.replace("Old", "New")
        .replace("2020", "2021")
        .replace("\n            config.size,\n        ", "config.size")
    )
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "class NewModel(OldModel):\n    def __init__" in result.proof.text
    assert "def forward" not in result.proof.text


def test_a_definition_without_twin_is_written_out(tmp_path: Path) -> None:
    new = OLD.replace("Old", "New").replace("2020", "2021").replace("return x * 2", "return x * 3")
    result = modularized(library_of(tmp_path, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "def scale(x):\n    return x * 3\n" in result.proof.text
    assert "class NewMLP" not in result.proof.text


def test_no_parent_is_younger_than_a_file_written_by_hand(tmp_path: Path) -> None:
    models = library_of(tmp_path, new=OLD.replace("Old", "New").replace("2020", "2021"))
    result = modularized(models, "old")
    assert result.proof is not None
    assert "new" not in result.proof.text


def test_no_parent_takes_from_the_model_itself(tmp_path: Path) -> None:
    new = OLD.replace("Old", "New")
    models = library_of(tmp_path, new=new, young=new.replace("New", "Young"))
    heir = "from ..{0}.modeling_{0} import {1}Model\n\n\nclass {2}Model({1}Model):\n    pass\n"
    (models / "new/modular_new.py").write_text(heir.format("old", "Old", "New"))
    (models / "young/modular_young.py").write_text(heir.format("new", "New", "Young"))
    flat, index, library = opened(models, "old")
    assert heirs_of(flat.modular, index.needs, library.settings) == {
        str(models / f"{one}/modular_{one}.py") for one in ("old", "new", "young")
    }
    result = modularize(flat, index, library)
    assert result.proof is not None
    assert "import OldModel" not in result.proof.text and "..new" not in result.proof.text


def test_a_file_that_does_not_come_back_stays_with_the_reason(tmp_path: Path) -> None:
    models = library_of(tmp_path, new=OLD.replace("Old", "New") + "\n\ndef unused():\n    return 1\n")
    result = modularized(models, "new")
    assert result.proof is None
    assert [reason.split(";")[0] for reason in result.left.values()] == ["not generated: unused"]


def test_marks_of_copies_and_unused_loggers_go(tmp_path: Path) -> None:
    marked = OLD.replace("Old", "New").replace("2020", "2021")
    marked = marked.replace("class NewMLP", "# Copied from models.old.modeling_old.OldMLP with Old->New\nclass NewMLP")
    marked = marked.replace("\n\ndef scale", "\nlogger = logging.get_logger(__name__)\n\n\ndef scale")
    marked = marked.replace("import torch\n", "import torch\nfrom utils import logging\n", 1)
    result = modularized(library_of(tmp_path, new=marked), "new")
    assert result.proof is not None and result.proof.round_trips
    (difference,) = result.proof.differences
    assert (difference.file.marks, difference.dropped) == (1, ("logger",))


def test_the_index_is_cached_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "cache"))
    models = library_of(tmp_path, new=OLD.replace("Old", "New"))
    settings = load_settings(str(models))
    fresh = read_index(str(models), Library(settings))
    assert read_index(str(models), Library(settings)) == fresh
    (models / "new/modeling_new.py").write_text(OLD.replace("Old", "New").replace("* 2", "* 4"))
    changed = read_index(str(models), Library(settings))
    assert changed == read_index(str(models), Library(settings), cached=False) != fresh


def test_a_constant_that_the_neighbour_has_otherwise_is_not_overridden(tmp_path: Path) -> None:
    """`FILES` of the modular file does not replace that of the neighbour, so its class cannot be the parent."""
    old = OLD.replace("def scale", 'FILES = {"file": "old.json"}\n\n\ndef scale')
    old = old.replace("        self.mlp", "        self.files = FILES\n        self.mlp")
    new = old.replace("Old", "New").replace("2020", "2021").replace("old.json", "other.json")
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "class NewMLP(OldMLP)" in result.proof.text and "class NewModel(nn.Module)" in result.proof.text


def test_an_import_that_only_the_generated_file_needs_stays(tmp_path: Path) -> None:
    old = OLD.replace("import torch\n", "from math import sqrt\n").replace("torch.tensor", "sqrt")
    new = old.replace("Old", "New").replace("2020", "2021").replace("from math", "from cmath")
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "from cmath import sqrt  # noqa: F401" in result.proof.text and "(OldModel)" in result.proof.text


def test_a_file_that_stays_does_not_keep_the_others(tmp_path: Path) -> None:
    models = library_of(tmp_path, new=OLD.replace("Old", "New").replace("2020", "2021"))
    (models / "new/processing_new.py").write_text("def unused():\n    return 1\n\n\n__all__ = ['unused']\n")
    result = modularized(models, "new")
    assert [Path(path).name for path in result.left] == ["processing_new.py"]
    assert result.proof is not None and "(OldModel)" in result.proof.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\n", "from __future__ import annotations\nimport torch\n"),
        ("def scale", "SIZE = 3\nTWICE = SIZE * 2\nSIZE = 5\n\n\ndef scale"),
        ("class NewModel(", "class NewMLP(nn.Linear):\n    pass\n\n\nclass NewModel("),
        ("from torch import nn\n", "from torch import nn\nfrom ..old.helpers import *\n"),
        ("from torch import nn\n", "try:\n    from torch import nn\nexcept ImportError:\n    nn = object\n"),
    ],
)
def test_what_a_conversion_would_lose_is_not_taken_for_the_same(before: str, after: str, tmp_path: Path) -> None:
    """A name defined again, everything of a module, and an import with a substitute: each is part of the meaning."""
    old = OLD.replace("return x * 2", "return x * 2 + SIZE + TWICE") if "TWICE" in after else OLD
    new = old.replace("Old", "New").replace("2020", "2021").replace(before, after)
    assert after in new
    result = modularized(library_of(tmp_path, new=new), "new")
    if result.proof is not None:
        (made,) = result.proof.conversion.files.values()
        assert after.strip().split("\n")[0] in made
    else:
        (reason,) = result.left.values()
        assert "the statement in line" in reason or "imported otherwise" in reason


def test_an_override_reads_no_local_name_of_its_parent(tmp_path: Path) -> None:
    old = OLD.replace(
        "        self.mlp =", "        width = config.width\n        height = width * 2\n        self.mlp ="
    )
    new = old.replace("Old", "New").replace("2020", "2021")
    new = new.replace("torch.tensor(config.size)", "torch.tensor(width)")
    result = modularized(library_of(tmp_path, old=old, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "torch.tensor(width)" in result.proof.text and "width = config.width" in result.proof.text


def test_a_function_of_a_third_model_takes_the_place_of_the_parents(tmp_path: Path) -> None:
    """What the parent's file brings under this name differs; the third file is named although no class is taken from it."""
    third = (
        "# Copyright 2020 Third.\n\n\ndef scale(x):\n    y = x * 3\n    y = y + 1\n    y = y - 2\n    return y / 2\n"
    )
    new = OLD.replace("Old", "New").replace("2020", "2021")
    new = new.replace("def scale(x):\n    return x * 2\n", third.partition("\n\n\n")[2])
    result = modularized(library_of(tmp_path, third=third, new=new), "new")
    assert result.proof is not None and result.proof.round_trips
    assert "from ..third.modeling_third import scale  # noqa: F401\n" in result.proof.text
    assert "def scale" not in result.proof.text and "class NewModel(OldModel):\n    pass" in result.proof.text


@pytest.mark.parametrize("has_decorator", [True, False])
def test_decorators_of_the_parent_go_where_the_package_can_say_so(has_decorator: bool, tmp_path: Path) -> None:
    old = OLD.replace("class OldModel", "@torch.no_grad()\nclass OldModel")
    new = OLD.replace("Old", "New").replace("2020", "2021")
    models = library_of(tmp_path, old=old, new=new)
    if has_decorator:
        (tmp_path / "utils").mkdir()
        (tmp_path / "utils/generic.py").write_text("def no_inherit_decorator(obj):\n    return obj\n")
    result = modularized(models, "new")
    assert result.proof is not None and result.proof.round_trips
    marked = "from ...utils.generic import no_inherit_decorator" in result.proof.text
    assert marked == has_decorator == ("@no_inherit_decorator\nclass NewModel(OldModel)" in result.proof.text)
