"""What `--changed-since` notices: in several work trees, behind links, in settings, and beyond the neighbours."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.check import check_command
from modular_converter.convert.source.library import Library
from modular_converter.git import affected
from modular_converter.settings.load import load_settings
from tests.unit.trees import BASE, add, commit, git


posix = pytest.mark.skipif(os.name == "nt", reason="links of POSIX")


def append(path: Path, text: str = "# by hand\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(text)


def touched(tree: Path, ref: str = "HEAD", models: str = "models") -> str:
    folder = tree / models
    paths = sorted(str(path) for path in folder.glob("*/modular_*.py"))
    found = affected.touched_since(ref, paths, Library(load_settings(folder)))
    return " ".join(os.path.basename(path)[8:-3] for path in found)


@pytest.mark.parametrize("spelt", ["from .. heir.", "from..heir.", "x = 1; from ..heir.", "from \\\n  ..heir."])
def test_a_neighbour_reaches_its_heirs_however_they_import_it(tree, spelt):
    leaf = tree / "models/leaf/modular_leaf.py"
    leaf.write_text(leaf.read_text().replace("from ..heir.", spelt))
    commit(tree)
    append(tree / "models/base/modeling_base.py")
    assert touched(tree) == "heir leaf"
    saved = {str(tree / "models/heir/modeling_heir.py")}  # as `--watch` asks
    library = Library(load_settings(tree))
    assert affected.affected(saved, map(str, tree.rglob("modular_*.py")), library) == [
        str(tree / "models/heir/modular_heir.py"),
        str(leaf),
    ]


def test_a_file_that_is_no_python_is_always_checked(tree):
    append(tree / "models/leaf/modular_leaf.py", "class (\n")
    commit(tree)
    assert touched(tree) == "leaf"


# Several work trees


def submodule(tree: Path, model: str, old: str) -> Path:
    """A model in a repository of its own, which is a submodule of the tree."""
    own = tree.parent / f"{model}_upstream"
    shutil.move(str(add(tree.parent, model, old).parent), str(own))
    (own / f"modeling_{model}.py").write_text(BASE.replace("Base", model.title()))
    commit(own, new=True)
    git(tree, "submodule", "--quiet", "add", str(own), f"models/{model}")
    commit(tree)
    return tree / "models" / model


@pytest.mark.parametrize("model", ["aaa", "zzz"])
def test_a_submodule_hides_nothing_and_shows_its_own(tree, model):
    folder = submodule(tree, model, "base")
    before = git(tree, "rev-parse", "HEAD")
    assert touched(tree) == touched(tree, before) == ""
    append(tree / "models/heir/modeling_heir.py")
    assert touched(tree) == "heir leaf"
    git(tree, "checkout", "-q", ".")
    append(folder / f"modeling_{model}.py")
    assert touched(tree) == touched(tree, before) == model, "an edit"
    commit(folder)
    assert touched(tree) == touched(tree, before) == model, "a commit within"
    commit(tree)
    assert touched(tree) == ""
    assert touched(tree, "HEAD~1") == touched(tree, before) == model, "another commit of it"


def test_a_neighbour_in_a_submodule_counts(tree):
    folder = submodule(tree, "zzz", "base")
    add(tree / "models", "mine", "zzz")
    commit(tree)
    assert touched(tree) == ""
    append(folder / "modeling_zzz.py")
    assert touched(tree) == "mine zzz"


def test_of_what_git_cannot_tell_it_is_taken_to_have_changed(tree):
    folder = add(tree / "models", "nested", "base").parent
    commit(folder, new=True)
    assert touched(tree) == "nested", "an untracked repository"
    append(tree / ".gitignore", "models/nested\n")
    before = commit(tree)
    assert touched(tree) == touched(tree, before) == "nested", "an ignored one, whose HEAD may be any commit"
    shutil.rmtree(folder / ".git")
    (folder / ".git").write_text("gitdir: nowhere\n")
    assert touched(tree) == "nested", "that is broken"


def test_a_commit_has_to_be_known_where_the_models_lie(tree):
    folder = submodule(tree, "aaa", "base")
    append(folder / "modular_aaa.py", "\n")
    known_there_only = commit(folder)
    arguments = ["--root", str(tree), "--no-cache", "--changed-since", known_there_only]
    result = CliRunner().invoke(check_command, arguments)
    assert result.exit_code == 2 and "MC117" in result.stderr


# Links


@posix
def test_a_generated_file_that_becomes_a_link(tree):
    generated = tree / "models/leaf/modeling_leaf.py"
    generated.rename(generated.with_name("other.py"))
    generated.symlink_to("other.py")
    assert touched(tree) == "leaf"
    commit(tree)
    assert touched(tree) == ""
    append(generated.with_name("other.py"))
    assert touched(tree) == "leaf", "what it leads to"


@posix
def test_models_behind_a_link(tree):
    (tree / "linked").symlink_to("models")
    commit(tree)
    assert touched(tree, models="linked") == ""
    append(tree / "models/leaf/modeling_leaf.py")
    assert touched(tree, models="linked") == "leaf"


# Settings and the tool


@pytest.mark.parametrize(
    "name",
    [
        "lint/format.toml",
        "lint/base.toml",
        "lint/basis.toml",
        "pyproject.toml",
        ".pre-commit-config.yaml",
        "requirements-dev.txt",
        "models/constraints.txt",
        "models/pylock.dev.toml",
        "uv.lock",
    ],
)
def test_a_change_of_settings_means_all(tree, name):
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "lint/format.toml"\n')
    append(tree / "lint/format.toml", 'extend = "base.toml"\n')
    append(tree / "lint/base.toml", 'extend = "basis.toml"\n')
    append(tree / "lint/basis.toml", "line-length = 100\n")
    for other in ("docs/requirements.txt", "docs/uv.lock", "lint/another.toml", "requirements.md"):
        append(tree / other)
    commit(tree)
    for other in ("docs/requirements.txt", "docs/uv.lock", "lint/another.toml", "requirements.md"):
        append(tree / other)
    assert touched(tree) == ""
    append(tree / name)
    assert touched(tree) == "heir leaf"


def test_a_file_that_ruff_extends_means_all_also_where_it_cannot_be_known(tree):
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\n[tool.ruff]\nextend = "base.toml"\n')
    append(tree / "base.toml", "line-length = 100\n")
    commit(tree)
    assert touched(tree) == ""
    append(tree / "base.toml")
    assert touched(tree) == "heir leaf"
    (tree / "base.toml").write_text('extend = "elsewhere.toml"\n')
    commit(tree)
    assert touched(tree) == "heir leaf"


def test_a_change_of_the_tool_itself_means_all(tree, monkeypatch):
    assert os.path.isfile(os.path.join(affected.PACKAGE, "convert", "pipeline.py"))
    append(tree / "tool/emit/format.py")
    commit(tree)
    append(tree / "tool/emit/format.py")
    assert touched(tree) == ""
    monkeypatch.setattr(affected, "PACKAGE", str(tree.resolve() / "tool"))
    assert touched(tree) == "heir leaf"


# Beyond the neighbours


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """`bbb` removes an attribute that its parent has from `mylib.base`, by way of `mylib.utils`."""
    files = {
        "utils.py": "class Mixin:\n    foo = 1\n\n\ndef helper():\n    return 1\n",
        "base.py": "from .other import thing\nfrom .utils import (\n    helper,  # a (helper)\n    Mixin,\n)\n\n\n"
        "class BaseConfig(Mixin):\n    bar = helper(thing)\n",
        "other.py": "thing = 1\n",
        "models/aaa/configuration_aaa.py": "from ...base import BaseConfig\n\n\nclass AaaConfig(BaseConfig):\n    x = 1\n",
        "models/bbb/modular_bbb.py": "from ..aaa.configuration_aaa import AaaConfig\n\n\n"
        "class BbbConfig(AaaConfig):\n    foo = AttributeError()\n",
        "models/ccc/modular_ccc.py": "from ..aaa.configuration_aaa import AaaConfig\n\n\n"
        "class CccConfig(AaaConfig):\n    y = 2\n",
    }
    for name, text in files.items():
        append(tmp_path / "src/mylib" / name, text)
    for folder in ("", "models", "models/aaa", "models/bbb", "models/ccc"):
        append(tmp_path / "src/mylib" / folder / "__init__.py", "")
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\nroot = "src/mylib"\n')
    assert check(CheckOptions(root=str(tmp_path / "src/mylib"), fix=True)).exit_code == 0
    commit(tmp_path, new=True)
    return tmp_path


@pytest.mark.parametrize(("name", "affects"), [("base", "bbb"), ("utils", "bbb"), ("other", "")])
def test_the_files_of_ancestors_count_where_attributes_are_removed(package, name, affects):
    assert touched(package, models="src/mylib/models") == ""
    append(package / f"src/mylib/{name}.py")
    assert touched(package, models="src/mylib/models") == affects


def test_an_attribute_that_an_ancestor_loses_is_noticed(package):
    (package / "src/mylib/utils.py").write_text("class Mixin:\n    other = 1\n\n\ndef helper():\n    return 1\n")
    options = CheckOptions(root=str(package / "src/mylib"), changed_since="HEAD")
    assert {one.code for one in check(options).findings} == {"MC202"}
    assert check(options).exit_code == check(options._replace(changed_since=None)).exit_code == 1


@posix
def test_the_generated_files_that_are_links(tmp_path: Path) -> None:
    modular, linked = tmp_path / "models/new/modular_new.py", tmp_path / "models/new/modeling_new.py"
    modular.parent.mkdir(parents=True)
    modular.write_text("")
    linked.symlink_to(tmp_path / "elsewhere.py")
    assert [*affected._links_of(str(modular), load_settings(str(tmp_path)))] == [str(linked)]
    assert not [*affected._links_of(str(linked), load_settings(str(tmp_path)))]
