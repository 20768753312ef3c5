"""From arguments to files with settings: the same for every command."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.files.arguments import Listings, ModelFolders, select_files
from modular_converter.findings import ConversionError


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for project, workers in (("one", 3), ("two", 4)):
        (tmp_path / project / "models/new").mkdir(parents=True)
        (tmp_path / project / "models/new/modular_new.py").write_text("")
        (tmp_path / project / "pyproject.toml").write_text(f"[tool.modular-converter]\nworkers = {workers}\n")
    monkeypatch.chdir(tmp_path / "one")
    return tmp_path


def test_the_settings_are_those_of_the_project_that_holds_the_files(tree):
    here = select_files(["new"])
    assert here.paths == (str(tree / "one/models/new/modular_new.py"),)
    assert (here.settings.workers, here.models) == (3, str(tree / "one/models"))
    assert select_files([str(tree / "two/models")]).settings.workers == 4
    assert select_files(["all"], root=str(tree / "two")).settings.workers == 4


def test_options_that_were_given_win_and_the_others_change_nothing(tree):
    overrides = {"workers": 7, "strict": False, "formatter": None}
    settings = select_files(["new"], overrides=overrides).settings
    assert (settings.workers, settings.strict, settings.formatter) == (7, False, "ruff")
    assert select_files(["new"], overrides={"workers": 0}).settings.workers == 0
    assert select_files(["new"], overrides={"strict": True}).settings.strict


def test_an_argument_without_files_is_a_problem_and_keeps_the_others(tree):
    found = select_files(["new", "nwe"])
    assert len(found.paths) == 1 and [finding.code for finding in found.findings] == ["MC111"]


def test_a_model_without_a_modular_file_is_not_told_to_be_unknown(tree):
    (tree / "one/models/old").mkdir()
    old, nwe = select_files(["old", "nwe"]).findings
    assert "no modular file in the folder of this model" in old.message and "Did you mean" not in old.help
    assert "no such model" in nwe.message and "Did you mean `new`" in nwe.help


def test_files_of_two_projects_are_refused(tree):
    with pytest.raises(ConversionError, match="MC116"):
        select_files([str(tree / "one/models"), str(tree / "two/models")])


def test_files_that_would_get_one_place_are_left_out(tree):
    (tree / "one/models/deep/new").mkdir(parents=True)
    (tree / "one/models/deep/new/modular_new.py").write_text("")
    (tree / "one/models/other").mkdir()
    (tree / "one/models/other/modular_other.py").write_text("")
    assert len(select_files(["all"]).paths) == 3
    found = select_files(["all"], overrides={"output_dir": str(tree / "out")})
    assert found.paths == (str(tree / "one/models/other/modular_other.py"),)
    assert [finding.code for finding in found.findings] == ["MC113", "MC113"]
    assert "models/deep/new/modular_new.py" in found.findings[1].message


def test_the_top_of_a_repository_in_place_of_its_only_package_is_taken_for_it(tree):
    top = tree / "three"
    for place in ("src/zoo/models/new", "src/zoo/models/old"):
        (top / place).mkdir(parents=True)
        (top / place / f"modular_{place[-3:]}.py").write_text("")
    for root in (top, top / "src", top / "src/zoo", top / "src/zoo/models"):
        found = select_files(["all"], root=str(root))
        assert (found.models, len(found.paths)) == (str(top / "src/zoo/models"), 2)
    assert len(select_files(["old"], root=str(top)).paths) == 1
    (top / "examples/mine").mkdir(parents=True)
    (top / "examples/mine/modular_mine.py").write_text("")
    found = select_files(["all"], root=str(top))
    assert (found.models, len(found.paths)) == (str(top), 3)  # no package holds them all


def test_a_folder_without_models_that_was_given_is_named(tree):
    (tree / "empty").mkdir()
    (finding,) = select_files(["all"], root=str(tree / "empty")).findings
    assert f"no modular file in {tree / 'empty'}" in finding.message


def test_folders_behind_links_are_found_once_and_outside_only_with_wanted_files(tree):
    models, other = tree / "one/models", tree / "two"
    (other / "empty").mkdir()
    for name, target in (
        ("again", models / "new"),
        ("twice", other / "models/new"),
        ("both", other / "models/new"),
        ("empty", other / "empty"),
    ):
        (models / name).symlink_to(target)
    found = sorted(ModelFolders(Listings(), lambda name: name.startswith("modular_")).below(str(models)))
    assert found[:-1] == [str(models), str(models / "new")]
    assert found[-1] in (str(models / "twice"), str(models / "both"))
