"""What no conversion generates: definitions that nothing uses go if a person says so, statements that do nothing go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.authoring.attempt import is_idle
from modular_converter.authoring.flat_model import read_flat_model
from modular_converter.authoring.modularize import unused_definitions
from modular_converter.commands.run_authoring import changes_of
from modular_converter.commands.subcommands import modularize_command
from modular_converter.convert.source.library import Library
from modular_converter.model.index import index_module
from modular_converter.settings.load import load_settings
from tests.unit.authoring.test_modularize import OLD, library_of, modularized


pytestmark = pytest.mark.usefixtures("cache")
UNUSED = """\
@torch.jit.script
def expand(x):
    return x


def outer(x):
    return expand(x)


SIZES = {"a": 1}
NAMES = {size: name for name, size in SIZES.items()}
"""


def unused(models: Path, added: str) -> list[str]:
    new = OLD.replace("Old", "New").replace("2020", "2021").replace("class NewMLP", f"{added}\n\nclass NewMLP")
    (models / "new").mkdir(exist_ok=True)
    (models / "new/modeling_new.py").write_text(new)
    library = Library(load_settings(str(models)))
    return unused_definitions(read_flat_model(str(models / "new"), "new", library).files[0], library)


def test_what_only_unused_definitions_use_is_unused(tmp_path: Path) -> None:
    assert unused(library_of(tmp_path), UNUSED) == ["expand", "outer", "SIZES", "NAMES"]


@pytest.mark.parametrize(
    "user",
    [
        "from .modeling_new import outer\n",
        "from models.new.modeling_new import (\n    other,\n    outer,\n)\n",
        "from . import modeling_new\n\nmodeling_new.outer(1)\n",
        "# Copied from models.new.modeling_new.outer\ndef outer(x):\n    return expand(x)\n",
    ],
)
def test_what_another_file_imports_or_names_is_used(user: str, tmp_path: Path) -> None:
    models = library_of(tmp_path)
    (models / "old/user.py").write_text(user)
    assert unused(models, UNUSED) == ["SIZES", "NAMES"]


@pytest.mark.parametrize(
    "used",
    [
        "@register('scale')\ndef unused(x):\n    return x\n",  # entered somewhere
        "TABLE = dict(a=1)\n",  # a call may have an effect
        "TABLE = {}\nTABLE['a'] = 1\n",
        "Pair = tuple[int, int]\n\n\nclass NewPairs:\n    one: 'Pair'\n",
        "Pair = tuple[int, int]\n\n\nclass NewPairs:\n    def f(self):\n        return globals()['Pair']\n",
        "for name in ():\n    unused = name\n",
    ],
)
def test_what_may_have_an_effect_or_a_reader_is_not_unused(used: str, tmp_path: Path) -> None:
    assert unused(library_of(tmp_path), used) == []


def test_without_a_list_of_exports_every_name_may_be_imported(tmp_path: Path) -> None:
    models = library_of(tmp_path, new=OLD.replace("Old", "New").split("__all__")[0] + UNUSED)
    library = Library(load_settings(str(models)))
    assert unused_definitions(read_flat_model(str(models / "new"), "new", library).files[0], library) == []


def test_with_allow_unused_the_file_comes_back_without_them_and_the_report_names_them(tmp_path: Path) -> None:
    models = library_of(tmp_path)
    unused(models, UNUSED)
    plain = CliRunner().invoke(modularize_command, ["new", "--root", str(models), "--dry-run"])
    assert plain.exit_code == 1
    assert "with `--allow unused` the unused definitions would go: expand, outer, SIZES, NAMES" in plain.stdout
    options = ["new", "--root", str(models), "--allow", "unused"]
    done = CliRunner().invoke(modularize_command, [*options, "--format", "json"])
    assert done.exit_code == 0
    (model,) = json.loads(done.stdout)["models"]
    assert model["left"] == {}
    assert "modeling_new.py: nothing uses `expand`, `outer`, `SIZES`, `NAMES`, which go" in model["changes"]
    assert "outer" not in (models / "new/modular_new.py").read_text()


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("if TYPE_CHECKING:\n    pass\n", True),
        ("if typing.TYPE_CHECKING:\n    pass\nelse:\n    pass\n", True),
        ("if TYPE_CHECKING:\n    X = int\n", False),
        ("if check():\n    pass\n", False),
        ("while x:\n    pass\n", False),
    ],
)
def test_statements_that_do_nothing(text: str, is_so: bool) -> None:
    (statement,) = index_module(text, "x.py").statements
    assert is_idle(statement) is is_so


def test_a_statement_that_does_nothing_goes_and_the_report_says_so(tmp_path: Path) -> None:
    idle = "from typing import TYPE_CHECKING\n\nimport torch\n\n\nif TYPE_CHECKING:\n    pass\n"
    new = OLD.replace("Old", "New").replace("2020", "2021").replace("import torch\n", idle, 1)
    result = modularized(library_of(tmp_path, new=new), "new")
    assert result.proof is not None and result.proof.round_trips and "TYPE_CHECKING" not in result.proof.text
    changes = [change for one in result.proof.differences for change in changes_of(one)]
    assert "modeling_new.py: `if TYPE_CHECKING:` does nothing, and goes" in changes
