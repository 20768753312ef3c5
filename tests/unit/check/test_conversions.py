"""What the cache knows of single files is no answer where place or order of the files speak against it."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.check import conversions
from modular_converter.check.cache.lookup import Cache
from modular_converter.check.run import CheckOptions, check
from modular_converter.settings.load import load_settings


GIVEN = "from torch import nn\n\n\nclass {Given}(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
TAKEN = "\n\nclass {New}({Old}):\n    pass\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """`one` and `two` each give a class, and build on the other's."""
    for model, other in (("one", "two"), ("two", "one")):
        folder = tmp_path / "models" / model
        folder.mkdir(parents=True)
        own = GIVEN.format(Given=f"{model.title()}MLP")
        (folder / f"modeling_{model}.py").write_text(own)
        taken = f"from ..{other}.modeling_{other} import {other.title()}MLP\n"
        own += TAKEN.format(New=f"{model.title()}Block", Old=f"{other.title()}MLP")
        (folder / f"modular_{model}.py").write_text(own.replace("\n\n\n", f"\n\n{taken}\n\n", 1))
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    return tmp_path


def run(tree: Path, *models: str, fix: bool = False):
    return check(CheckOptions(models or ("all",), root=str(tree), cache=str(tree / "cache"), fix=fix))


def known(tree: Path) -> list[str]:
    cache = Cache(str(tree / "cache"), load_settings(tree / "models"))
    return [path.stem for path in sorted(tree.rglob("modular_*.py")) if cache.look_up([str(path)])]


def test_files_that_build_on_each_other_are_refused_though_each_is_known(tree):
    for model in ("one", "two", "one", "two"):
        assert run(tree, model, fix=True).exit_code == 0
    assert known(tree) == ["modular_one", "modular_two"]
    assert {one.code for one in run(tree).findings} == {"MC110"}
    assert run(tree, "one").exit_code == 0


def test_the_cache_knows_whether_its_files_build_on_each_other(tree, monkeypatch):
    """So a check without changes need not look, and a part of what is in order is in order."""
    (tree / "models/two/modular_two.py").write_text(GIVEN.format(Given="TwoMLP"))
    run(tree, fix=True)
    monkeypatch.setattr(conversions, "_form_cycle", lambda *arguments: pytest.fail("the cache knows"))
    assert run(tree).exit_code == run(tree, "one").exit_code == run(tree, "two").exit_code == 0


def test_a_package_that_the_models_come_to_lie_in_is_a_miss(tree):
    run(tree, "one", fix=True)
    assert known(tree) == ["modular_one"]
    (tree / "models/__init__.py").touch()
    assert known(tree) == []
    (tree / "models/__init__.py").unlink()
    assert known(tree) == ["modular_one"]
