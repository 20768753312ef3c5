"""Files that differ in the same way are told once; those that git proves to be edited by hand are not among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from modular_converter.check.run import CheckOptions, CheckResult, check
from modular_converter.settings.load import parse_release, profile_settings
from tests.unit.trees import add, commit, edit, fix, git, run


MAJOR, MINOR, *_ = parse_release(profile_settings().checked_release)
PARENT = '''\
from decorators import first, second
from torch import nn


class BaseMLP(nn.Module):
    """An MLP."""

    @first
    @second
    def forward(self, x):
        # The sum.
        return x + 1
'''
MODELS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kiwi", "lynx")


def plant(root: Path, models: tuple[str, ...], *, own_parents: bool = True) -> Path:
    """Models with a parent each, or all with one parent, generated and not yet committed."""
    root.mkdir()
    for model in models:
        parent = f"{model}base" if own_parents else "base"
        add(root / "models", model, parent)
        (root / "models" / parent).mkdir(exist_ok=True)
        (root / f"models/{parent}/modeling_{parent}.py").write_text(PARENT.replace("Base", parent.title()))
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    fix(root)
    return root


def result(root: Path) -> CheckResult:
    return check(CheckOptions(root=str(root)))


def codes(root: Path) -> list[str]:
    return sorted(one.code for one in result(root).findings)


def edit_all(root: Path, models: tuple[str, ...], old: str, new: str) -> None:
    for model in models:
        edit(root, f"modeling_{model}.py", old, new)


@pytest.mark.parametrize("number", [3, 9, 10])
def test_files_that_were_committed_so_are_one_finding(tmp_path: Path, number: int) -> None:
    root = plant(tmp_path / "tree", MODELS[:number])
    edit_all(root, MODELS[:number], "    @first\n", "    @third\n    @first\n")
    commit(root, new=True)
    said = run(root)
    assert said.exit_code == 1 and said.output.count("MC4") == 1, said.output
    assert f"{number} of {number} generated files that differ do so in the same way" in said.output
    assert "the conversion leaves out decorators of methods" in said.output and "modeling_ant.py:14:1" in said.output
    assert ("a convention has probably changed; these files were not edited by hand" in said.output) is (number >= 10)
    assert "Put edits" not in said.output and said.output.count("--- a/") == 1, "one example"
    assert "`@third` on disk, missing in the conversion" in said.output
    assert (
        f"bee/modeling_bee.py:14, cat/modeling_cat.py:14{'.' if number == 3 else ', dog/modeling_dog.py:14 and'}"
        in said.output
    )


def test_names_do_not_count_and_two_files_are_no_group(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:5])
    for model in MODELS[:3]:
        edit(root, f"modeling_{model}.py", "    @first\n", f"    @{model}.cached({len(model)})\n    @first\n")
    edit_all(root, MODELS[3:5], "x + 1", "x + 2")
    commit(root, new=True)
    assert codes(root) == ["MC401", "MC401", "MC404"]
    (group,) = (one for one in result(root).findings if one.code == "MC404")
    assert group.message.startswith("3 of 5 ") and len(group.related) == 2


def test_a_file_with_another_difference_has_a_finding_of_its_own_too(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:4])
    edit_all(root, MODELS[:4], "    @first\n", "")
    edit(root, "modeling_bee.py", "x + 1", "x + 2")
    commit(root, new=True)
    (own,) = (one for one in result(root).findings if one.code == "MC401")
    assert "modeling_bee.py" in own.location.path and "; MC404 tells the rest" in own.message
    assert own.source_line.strip() == "return x + 2"


def test_two_kinds_are_two_groups(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:6])
    edit_all(root, MODELS[:6], "    @first\n", "")
    edit_all(root, MODELS[:3], '    """An MLP."""\n\n', "")
    commit(root, new=True)
    assert codes(root) == ["MC404", "MC404"]
    assert [one.message.split(":")[1].split(";")[0] for one in result(root).findings] == [
        " the conversion adds decorators of methods",
        " the conversion adds docstrings of classes",
    ]


def test_files_that_git_proves_to_be_edited_alike_are_none(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS)
    commit(root, new=True)
    edit_all(root, MODELS, "x + 1", "x + 2")
    assert codes(root) == ["MC401"] * len(MODELS)
    git(root, "commit", "-qam", "by hand")
    assert codes(root) == ["MC401"] * len(MODELS)
    assert all("edited by hand in" in one.message for one in result(root).findings)


@pytest.mark.parametrize("committed", [False, True])
def test_heirs_of_a_changed_file_are_told_one_by_one(tmp_path: Path, committed: bool) -> None:
    root = plant(tmp_path / "tree", MODELS[:5], own_parents=False)
    commit(root, new=True)
    edit(root, "modeling_base.py", "x + 1", "x + 2")
    if committed:
        git(root, "commit", "-qam", "a change of the parent")
    assert codes(root) == ["MC401"] * 5
    assert all("has changed: modeling_base.py" in one.message for one in result(root).findings)


def test_without_history_the_shared_file_is_named(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:5], own_parents=False)
    edit(root, "modeling_base.py", "x + 1", "x + 2")
    (group,) = result(root).findings
    assert group.code == "MC404" and "either modeling_base.py, which all are made from, has changed" in group.message


def test_a_convention_is_seen_beside_a_changed_source(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:5])
    edit_all(root, MODELS[:5], "    @first\n", "")
    commit(root, new=True)
    edit(root, "modeling_antbase.py", "x + 1", "x + 2")
    found = result(root).findings
    assert [one.code for one in found] == ["MC404", "MC401"] and found[0].message.startswith("5 of 5 ")
    assert "modeling_antbase.py" in found[1].message


def test_in_a_newer_release_the_convention_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:3])
    edit_all(root, MODELS[:3], "        # The sum.\n", "")
    edit_all(root, MODELS[:3], "from models/", "from src/transformers/models/")
    package = tmp_path / "transformers"
    package.mkdir()
    (root / "models").rename(package / "models")
    (package / "__init__.py").write_text(f'__version__ = "{MAJOR}.{MINOR + 1}.0"\n')
    before = {path: path.read_bytes() for path in package.rglob("*.py")}
    said = run(package, "--write")
    assert said.exit_code == 1 and said.stderr.split()[1:3] == ["error", "MC394"], said.output
    assert "the conversion adds comments; the conventions have probably changed with the release" in said.output
    assert (
        said.stderr.count("error MC404") == said.stderr.count("error MC4") == 1
        and "Do not run `--write`" in said.output
    )
    assert {path: path.read_bytes() for path in package.rglob("*.py")} == before


def test_programs_get_all_places(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:4])
    edit_all(root, MODELS[:4], "    @first\n", "")
    commit(root, new=True)
    (found,) = json.loads(run(root, "--format", "json").stdout)
    assert [(one["path"].rsplit("/", 1)[-1], one["line"]) for one in found["related"]] == [
        (f"modeling_{model}.py", 14) for model in MODELS[1:4]
    ]
    (sarif,) = json.loads(run(root, "--format", "sarif").stdout)["runs"][0]["results"]
    places = [one["physicalLocation"] for one in sarif["relatedLocations"]]
    assert len(places) == 3 and places[0]["region"] == {"startLine": 14}
    (line,) = run(root, "--format", "github").stdout.splitlines()
    assert line.startswith("::error file=") and "4 of 4 generated files" in line and "bee/modeling_bee.py" in line


def test_files_without_python_are_told_alone(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:4])
    edit_all(root, MODELS[:4], "class ", "<<<<<<< HEAD\nclass ")
    commit(root, new=True)
    assert codes(root) == ["MC401"] * 4


@pytest.mark.parametrize(("number", "codes_"), [(9, ["MC401"] * 9), (10, ["MC404"])])
def test_other_words_in_each_of_many_models_are_one_kind(tmp_path: Path, number: int, codes_: list[str]) -> None:
    root = plant(tmp_path / "tree", MODELS[:number])
    for at, model in enumerate(MODELS[:number]):
        edit(root, f"modeling_{model}.py", "x + 1", f"x + 1{at}")
    commit(root, new=True)
    found = result(root).findings
    assert [one.code for one in found] == codes_
    if number == 10:
        assert (
            found[0].message.startswith("10 of 10 ")
            and "the conversion writes `…` for `…`; a conv" in found[0].message
        )


def test_changes_that_always_stand_together_are_one_kind(tmp_path: Path) -> None:
    root = plant(tmp_path / "tree", MODELS[:4])
    edit_all(root, MODELS[:4], "x + 1", "1 + x")
    commit(root, new=True)
    assert codes(root) == ["MC404"]
    edit_all(root, MODELS[:1], "1 + x", "1 - x")
    assert codes(root) == ["MC401", "MC404"], "another change in the same line of one file"


def test_changes_that_are_as_frequent_in_the_same_files_are_one_kind(tmp_path: Path) -> None:
    """An import that is split in two: a name is added at the first line, and the second line is left out."""
    root = plant(tmp_path / "tree", MODELS[:4])
    edit_all(root, MODELS[:4], "import first, second\n", "import first\nfrom decorators import second\n")
    commit(root, new=True)
    (found,) = result(root).findings
    assert found.code == "MC404"
    assert "the conversion adds imported names and leaves out imports;" in found.message
    edit(root, "modeling_ant.py", "from torch import nn\n", "from torch import nn\nfrom torch import fx\n")
    assert codes(root) == ["MC404", "MC404"], "one of them is more frequent in one file"
